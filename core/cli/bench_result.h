// What `sluice bench` measured, in the forms in which it prints it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

// A prompt, and tokens behind it. Tokens per second in each repeat; empty when nothing was
// measured.
struct BenchResult {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t generated_tokens = 0;
  std::vector<double> prefill;
  std::vector<double> decode;        // of all sequences together
  std::vector<double> others;        // the share of the CPUs' time that others took, each repeat
  std::uint32_t decoded_tokens = 0;  // of each sequence, in the shortest repeat

  std::uint32_t quiet_repeats() const;
  bool is_cut_short() const { return decoded_tokens < generated_tokens; }
};

std::optional<double> median(std::vector<double> values);

// The median of `rates`, a list of `result`, in its quiet repeats; of all when none was quiet.
std::optional<double> speed_of(const BenchResult& result, const std::vector<double>& rates);

nlohmann::ordered_json to_json(const BenchResult& result);

// `report` is the JSON of the run (RunWatch::report) with its prediction. The table is for people
// and has the limits of the machine; the others have a line for each result, with the processor,
// the version of the program and the date.
std::string bench_table(const nlohmann::ordered_json& report,
                        const std::vector<BenchResult>& results);
std::string bench_csv(const nlohmann::ordered_json& report,
                      const std::vector<BenchResult>& results);
std::string bench_markdown(const nlohmann::ordered_json& report,
                           const std::vector<BenchResult>& results);

}  // namespace sluice::cli
