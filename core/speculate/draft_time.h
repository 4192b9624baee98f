// How long a source takes to find a draft: a mean that forgets.
#pragma once

#include <algorithm>

namespace sluice::speculate {

class DraftTime {
 public:
  // Seconds; 0 when nothing was measured yet.
  double seconds_each() const { return seconds_each_; }

  // A step that was held up by accident counts little.
  void measured(double seconds) {
    constexpr double newest_weight = 0.1, credible = 2;
    if (seconds_each_ == 0) seconds_each_ = seconds;
    seconds = std::min(seconds, credible * seconds_each_);
    const double weight = seconds < seconds_each_ / credible ? 1 : newest_weight;
    seconds_each_ += weight * (seconds - seconds_each_);
  }

 private:
  double seconds_each_ = 0;
};

}  // namespace sluice::speculate
