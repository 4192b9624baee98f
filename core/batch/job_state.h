// What a batch was started with, kept beside its output as OUT.state, so that going on with another
// input, model or setting is noticed. Written once, when the job begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/files/system_calls.h"

namespace sluice::batch {

// One of `count` parts of an input: the rows whose number r has (r - 1) % count == index - 1.
struct Shard {
  std::uint64_t index = 1;
  std::uint64_t count = 1;

  bool has(std::uint64_t row) const { return (row - 1) % count == index - 1; }
  std::uint64_t size(std::uint64_t rows) const {
    return rows < index ? 0 : (rows - index) / count + 1;
  }
};

// "2/4"; nothing when it is not of that form with 1 <= 2 <= 4.
std::optional<Shard> parse_shard(std::string_view text);

struct JobState {
  std::uint64_t input_bytes = 0;
  std::uint64_t input_digest = 0;
  std::uint64_t rows = 0;  // of the whole input
  Shard shard;
  // Everything else that a result depends on, under the names that the user gave it:
  // {"--temp": 0.8, "model": "..."}.
  nlohmann::ordered_json settings;
};

std::filesystem::path state_path(const std::filesystem::path& output);

// Throws std::system_error; UsageError when the file is not a state. Nothing when there is none.
std::optional<JobState> read_state(const std::filesystem::path& output);

// A files::DurableFile. Throws std::system_error.
void write_state(const std::filesystem::path& output, const JobState& state,
                 files::SystemCalls& system = files::kernel());

// What differs, each as a short text: "--temp was 0.8 and is 0.5". The shard is left out when
// `parts_of_one` (merging).
std::vector<std::string> differences(const JobState& before, const JobState& now,
                                     bool parts_of_one = false);

}  // namespace sluice::batch
