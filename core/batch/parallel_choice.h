// Chooses how many sequences share a step.
//
// A step of n sequences reads the weights once, whatever n is, and multiplies n times as much;
// meanwhile the streamed weights are read from the disk, once. More sequences take memory away from
// the pinned weights, so more has to be streamed. The choice is the fewest sequences with which the
// whole job, prompts and generated tokens, takes hardly longer than with any other number.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::batch {

inline constexpr std::uint32_t parallel_max = 256;

// The work that is left.
struct Workload {
  std::uint64_t rows = 0;
  std::uint64_t prompt_tokens = 0;     // of all rows
  std::uint64_t generated_tokens = 0;  // of all rows, at most
};

// The measured time of steps without the disk, by their number of tokens.
class StepCurve {
 public:
  struct Point {
    double tokens, seconds;
  };
  // Points by ascending tokens, at least one.
  explicit StepCurve(std::vector<Point> points) : points_(std::move(points)) {}

  // Interpolates between two points, extrapolates beyond the last one; before the first: its time.
  double seconds(double tokens) const;

 private:
  std::vector<Point> points_;
};

struct ParallelChoice {
  std::uint32_t parallel = 1;
  std::string reason;  // one line
};

// `streamed_bytes(n)` is what a step would read from the disk if memory were planned for n
// sequences; nothing when that plan does not fit.
ParallelChoice choose_parallel(
    const StepCurve& curve, double disk_bytes_per_s, const Workload& work,
    const std::function<std::optional<std::uint64_t>(std::uint32_t parallel)>& streamed_bytes);

}  // namespace sluice::batch
