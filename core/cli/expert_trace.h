// The file of --trace-experts: which experts each token took, for bench/bench_experts.
//
// Text. The first line is "sluice experts 1". Each further line is "G X: E E ...": group (layers
// with experts, from 0), how many experts it has, and the numbers of those that a token took. The
// tokens of a step stand in the order of its columns, group by group.
#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "core/files/durable_file.h"
#include "core/model/expert_watch.h"

namespace sluice::cli {

inline constexpr const char* expert_trace_head = "sluice experts 1";

// Whether a file is one.
bool is_expert_trace(const std::filesystem::path& path);

// Writes the file. Threads: one at a time.
class ExpertTrace {
 public:
  ExpertTrace() = default;
  // A run that has failed leaves what it has traced.
  ~ExpertTrace();
  ExpertTrace(const ExpertTrace&) = delete;
  ExpertTrace& operator=(const ExpertTrace&) = delete;

  // A watch that writes the file, also for a further engine of the same run. The trace must outlive
  // it. Throws std::system_error.
  model::ExpertWatch watch(const std::filesystem::path& path);

  // Completes the file, if there is one. Nothing may be watched after this. Throws
  // std::system_error when the trace is lost, also where that was found before: no step fails of
  // it.
  void end();

 private:
  void add(const model::ExpertChoices& choices);

  std::unique_ptr<files::DurableFile> file_;
  std::string text_;            // not yet written
  std::exception_ptr failure_;  // nothing is written any more
};

}  // namespace sluice::cli
