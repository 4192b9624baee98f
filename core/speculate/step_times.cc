#include "core/speculate/step_times.h"

#include <algorithm>

namespace sluice::speculate {

void StepTimes::measured(std::size_t columns, double seconds) {
  constexpr std::uint64_t steps_remembered = 256;
  constexpr double newest_weight = 0.25;
  // The first step of a size may touch memory for the first time, and any step may be held up.
  constexpr double credible = 2;
  if (columns == 0 || columns > columns_max || !(seconds > 0)) return;
  ++steps_;
  for (Mean& mean : means_) {
    if (steps_ - mean.newest > steps_remembered) mean = {};
  }
  Mean& mean = means_[columns];
  if (mean.count > 1) seconds = std::min(seconds, credible * mean.seconds);
  ++mean.count;
  const double weight = std::max(newest_weight, 1.0 / mean.count);
  mean.seconds += weight * (seconds - mean.seconds);
  mean.newest = steps_;
}

// Between two measured sizes on the line through them. Above the widest one a column takes what was
// guessed. Below the narrowest one, no step is quicker than that.
double StepTimes::seconds(std::size_t columns) const {
  std::size_t below = 0, above = 0, narrowest = 0;  // 0: none
  for (std::size_t c = 1; c <= columns_max; ++c) {
    if (means_[c].count == 0) continue;
    if (narrowest == 0) narrowest = c;
    if (c <= columns) below = c;
    if (c >= columns && above == 0) above = c;
  }
  if (narrowest == 0) return 0;
  if (below == 0) return means_[above].seconds;
  const double from = means_[below].seconds;
  const auto more = static_cast<double>(columns - below);
  if (above == 0) return from + more * slope_ * means_[narrowest].seconds;
  if (above == below) return from;
  return from + more / static_cast<double>(above - below) * (means_[above].seconds - from);
}

}  // namespace sluice::speculate
