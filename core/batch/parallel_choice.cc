#include "core/batch/parallel_choice.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

namespace sluice::batch {
namespace {

constexpr double hardly_longer = 1.02;

struct Candidate {
  std::uint32_t parallel = 1;
  double compute_s = 0, disk_s = 0;  // of a step
  double steps = 0;

  double step_s() const { return std::max(compute_s, disk_s); }
  double job_s() const { return steps * step_s(); }
};

// Assumes that all rows are alike and run in groups of n. Their prompts are spread over the steps:
// a step with few sequences has room for them.
Candidate estimate(const StepCurve& curve, double disk_bytes_per_s, const Workload& work,
                   std::uint32_t parallel, std::uint64_t streamed_bytes) {
  const auto rows = static_cast<double>(work.rows);
  const double turns = std::ceil(rows / parallel);
  Candidate out{.parallel = parallel};
  out.steps = turns * std::max(1.0, static_cast<double>(work.generated_tokens) / rows);
  const auto tokens = static_cast<double>(work.prompt_tokens + work.generated_tokens);
  out.compute_s = curve.seconds(std::max(1.0, tokens / out.steps));
  out.disk_s = streamed_bytes == 0 ? 0 : static_cast<double>(streamed_bytes) / disk_bytes_per_s;
  return out;
}

}  // namespace

double StepCurve::seconds(double tokens) const {
  if (tokens <= points_.front().tokens || points_.size() == 1) {
    const double times = std::max(1.0, tokens / points_.front().tokens);
    return points_.front().seconds * times;
  }
  std::size_t i = 1;
  while (i + 1 < points_.size() && points_[i].tokens < tokens) ++i;
  const Point &a = points_[i - 1], &b = points_[i];
  const double slope = (b.seconds - a.seconds) / (b.tokens - a.tokens);
  return a.seconds + std::max(0.0, slope) * (tokens - a.tokens);
}

ParallelChoice choose_parallel(
    const StepCurve& curve, double disk_bytes_per_s, const Workload& work,
    const std::function<std::optional<std::uint64_t>(std::uint32_t parallel)>& streamed_bytes) {
  if (work.rows <= 1) return {1, "there is one row"};
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(work.rows, parallel_max));
  std::vector<Candidate> candidates;
  std::string_view end = "no more are tried";
  for (std::uint32_t n = 1;; n = std::min(2 * n, most)) {
    const std::optional<std::uint64_t> bytes = streamed_bytes(n);
    if (!bytes) {
      end = "more do not fit the budget";
      break;
    }
    candidates.push_back(estimate(curve, disk_bytes_per_s, work, n, *bytes));
    if (n == most) {
      if (most == work.rows) end = "there are no more rows";
      break;
    }
  }
  if (candidates.empty()) return {1, "not even one sequence fits the budget"};
  const double best = std::ranges::min_element(candidates, {}, &Candidate::job_s)->job_s();
  const auto chosen = std::ranges::find_if(
      candidates, [&](const Candidate& c) { return c.job_s() <= hardly_longer * best; });
  if (chosen + 1 != candidates.end()) end = "more would gain nothing";
  return {chosen->parallel,
          fmt::format("a step takes {:.2f} s of arithmetic and {:.2f} s of disk; {}",
                      chosen->compute_s, chosen->disk_s, end)};
}

}  // namespace sluice::batch
