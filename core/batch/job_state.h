// What a batch was started with. It is stored beside the output as OUT.state when the job begins,
// so that resuming with another input, model or setting is noticed.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <sys/types.h>
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

// Parses "2/4"; nothing when it does not have that form with 1 <= index <= count.
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

// Nothing when there is no state. Throws std::system_error, and UsageError when the file is not
// one.
std::optional<JobState> read_state(const std::filesystem::path& output);

// Writes it with files::DurableFile. Throws std::system_error.
void write_state(const std::filesystem::path& output, const JobState& state,
                 files::SystemCalls& system = files::kernel(), mode_t mode = 0666);

// The setting of a job whose template writes the date: the day on which the job began, which
// templates see until it ends.
inline constexpr const char* date_setting = "the date";
std::string date_text(const std::tm& time);  // "2026-11-26"

// Gives the job the day of the one that it goes on with.
void keep_date(JobState& now, const std::optional<JobState>& before);

// The beginning of the day that templates see; nothing where none was noted.
std::optional<std::tm> date_of(const JobState& state);

// The differences, each as a short text: "--temp was 0.8 and is 0.5". With `parts_of_one` (merging)
// the shards are not compared.
std::vector<std::string> differences(const JobState& before, const JobState& now,
                                     bool parts_of_one = false);

}  // namespace sluice::batch
