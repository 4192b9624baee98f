// How much a bench measures when it is not told how often: what fits into some time, and into some
// bytes read from the disk, so that a large model under a small limit does not read for an hour.
//
// Times are in seconds, of any clock. Nothing here waits or measures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sluice::cli {

class BenchAllowance {
 public:
  static constexpr std::uint32_t repeats = 3;
  static constexpr std::uint32_t repeats_max = 6;  // where others disturb them
  static constexpr double seconds_max = 30;        // of all results together
  static constexpr double bytes_max = 32e9;        // read from the disk; all results together
  static constexpr std::uint32_t steps_min = 4;    // of a decode that is cut short

  // `repeat` is that of the user, who then gets all of it; 0: not given. `step_bytes` are read from
  // the disk in each step.
  BenchAllowance(std::uint32_t repeat, std::size_t results, std::uint64_t step_bytes)
      : repeat_(repeat),
        step_bytes_(static_cast<double>(step_bytes)),
        seconds_(seconds_max / static_cast<double>(std::max<std::size_t>(results, 1))),
        bytes_(bytes_max / static_cast<double>(std::max<std::size_t>(results, 1))) {}

  void begin_result(double now) {
    begin_ = now;
    longest_ = 0;
    steps_ = 0;
  }
  void begin_repeat(double now) {
    repeat_begin_ = now;
    repeat_steps_ = 0;
  }
  void end_repeat(double now) {
    longest_ = std::max(longest_, now - repeat_begin_);
    most_steps_ = repeat_steps_;
  }
  void end_step() {
    ++steps_;
    ++repeat_steps_;
  }

  // After `done` repeats, of which others disturbed all but `quiet`.
  bool wants_repeat(double now, std::uint32_t done, std::uint32_t quiet) const {
    if (repeat_ != 0) return done < repeat_;
    if (done == 0) return true;
    if (quiet >= repeats || done >= repeats_max) return false;
    return now + longest_ <= begin_ + seconds_ && bytes(most_steps_) <= bytes_;
  }

  // After `decoded` tokens of a decode.
  bool wants_step(double now, std::uint32_t decoded) const {
    if (repeat_ != 0 || decoded < steps_min) return true;
    return now <= begin_ + seconds_ && bytes(1) <= bytes_;
  }

 private:
  // That have been read when so many more steps are done.
  double bytes(std::uint64_t more_steps) const {
    return static_cast<double>(steps_ + more_steps) * step_bytes_;
  }

  std::uint32_t repeat_;
  double step_bytes_, seconds_, bytes_;
  double begin_ = 0, repeat_begin_ = 0, longest_ = 0;
  std::uint64_t steps_ = 0, repeat_steps_ = 0, most_steps_ = 0;
};

}  // namespace sluice::cli
