// The file of --trace-experts: which experts each token took, for bench/bench_experts.
//
// Text. The first line is "sluice experts 1". Each further line is "G X: E E ...": group (layers
// with experts, from 0), how many experts it has, and the numbers of those that a token took. The
// tokens of a step stand in the order of its columns, group by group.
#pragma once

#include <filesystem>

#include "core/model/expert_watch.h"

namespace sluice::cli {

inline constexpr const char* expert_trace_head = "sluice experts 1";

// Whether a file is one.
bool is_expert_trace(const std::filesystem::path& path);

// A watch that writes the file. It is complete when the watch and its copies are gone. The watch
// throws std::system_error when the file cannot be written.
model::ExpertWatch trace_experts(const std::filesystem::path& path);

}  // namespace sluice::cli
