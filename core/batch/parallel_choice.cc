#include "core/batch/parallel_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <vector>

namespace sluice::batch {
namespace {

constexpr double enough = 0.9;  // of the greatest speed
// Of the peak of the arithmetic, what steps of several sequences reach with all that is no product
// of weights: measured, on llama-1b with 1 to 32 sequences.
constexpr double peak_share = 0.4;

struct Candidate {
  std::uint32_t parallel = 1;
  double compute_s = 0, dram_s = 0, disk_s = 0;

  double step_s() const { return std::max(dram_s + compute_s, disk_s); }
  double tokens_per_s() const { return step_s() > 0 ? parallel / step_s() : 0; }
};

double seconds(std::uint64_t amount, double per_s) {
  return per_s > 0 ? static_cast<double>(amount) / per_s : 0;
}

}  // namespace

ParallelChoice choose_parallel(
    const engine::MachineLimits& limits, std::uint64_t rows,
    const std::function<std::optional<engine::DecodeWork>(std::uint32_t parallel)>& work_of) {
  std::vector<Candidate> candidates;
  std::string_view end = "no more help";
  for (std::uint32_t n = 1; n <= parallel_max; n *= 2) {
    const auto work = work_of(n);
    if (!work) {
      end = "more do not fit the budget";
      break;
    }
    candidates.push_back({n, n * seconds(work->macs, peak_share * limits.int8_macs_per_s),
                          seconds(work->hot_bytes, limits.dram_bytes_per_s),
                          seconds(work->streamed_bytes, limits.disk_bytes_per_s)});
    if (n >= rows) {
      end = "there are no more rows";
      break;
    }
  }
  if (candidates.empty()) return {1, "not even one sequence fits the budget"};
  const double best =
      std::ranges::max_element(candidates, {}, &Candidate::tokens_per_s)->tokens_per_s();
  const auto chosen = std::ranges::find_if(
      candidates, [&](const Candidate& c) { return c.tokens_per_s() >= enough * best; });
  if (chosen + 1 != candidates.end()) end = "more would gain little";
  return {chosen->parallel,
          fmt::format("a step would take {:.2f} s of disk, {:.2f} s of memory and {:.2f} s of "
                      "arithmetic; {}",
                      chosen->disk_s, chosen->dram_s, chosen->compute_s, end)};
}

}  // namespace sluice::batch
