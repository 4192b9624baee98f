// How long a step takes by its number of columns: measured, and guessed where nothing was measured.
//
// Only ratios matter. A time is a mean that forgets. One that was not measured for a long time is
// forgotten altogether, so that a step that was slow by accident is tried again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::speculate {

class StepTimes {
 public:
  static constexpr std::size_t columns_max = 96;  // wider steps are not considered

  // `slope`: what a further column is guessed to take, as a part of the narrowest step.
  explicit StepTimes(double slope) : slope_(slope) {}

  // A step of so many columns has taken so many seconds.
  void measured(std::size_t columns, double seconds);

  // The time of a step, at least a column wide, in seconds; 0 when nothing was measured yet.
  double seconds(std::size_t columns) const;

 private:
  struct Mean {
    double seconds = 0;
    std::uint32_t count = 0;   // 0: not measured, or forgotten
    std::uint64_t newest = 0;  // number of the newest measurement
  };

  double slope_;
  std::uint64_t steps_ = 0;
  std::array<Mean, columns_max + 1> means_ = {};
};

}  // namespace sluice::speculate
