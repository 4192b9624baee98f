#include "core/engine/memory_policy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "topology/process_memory.h"

namespace sluice::engine {
namespace {

using std::chrono::milliseconds;

// Over shorter times the kernel's counters, which it updates in batches, would look like a speed.
constexpr milliseconds rate_time_min{8}, rate_time_max{400};
// A loss of up to this many bytes is ignored: each thread that faults may have a huge page that is
// charged and not yet counted as the process's own, and reading the counters takes a while.
constexpr std::uint64_t rate_noise_bytes = MemoryPolicy::margin_bytes;
constexpr double rate_half_life_s = 1.5;

// Nobody takes memory faster than this, because the kernel has to zero it first.
constexpr double fastest_bytes_per_s = 10e9;
constexpr milliseconds look_period_min{3}, look_period_max{100};

double seconds(MemoryPolicy::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) {
  return a - std::min(a, b);
}

}  // namespace

MemoryPolicy::MemoryPolicy(std::uint64_t rest_bytes, std::uint64_t pinned_bytes)
    : rest_bytes_(rest_bytes), pinned_bytes_(pinned_bytes), limit_bytes_(pinned_bytes) {}

void MemoryPolicy::look(std::uint64_t usable_bytes, Clock::time_point now) {
  measure_rate(usable_bytes, now);
  const std::uint64_t left = less(usable_bytes, rest_bytes_);
  auto reserve = static_cast<std::uint64_t>(
      std::min(taken_bytes_per_s_ * seconds(horizon), static_cast<double>(reserve_bytes_max)));
  if (reserve < reserve_bytes_min) reserve = 0;
  // A plan may use its budget to the last byte; the margin is for growth beyond it.
  const bool is_enough = less(left, reserve) >= pinned_bytes_;
  const std::uint64_t target =
      is_enough ? pinned_bytes_ : std::min(pinned_bytes_, less(left, reserve + margin_bytes));
  if (target < limit_bytes_) {
    shrink(target, now);
  } else {
    grow(target, now);
  }
  spare_bytes_ = less(left, limit_bytes_);
  const double spare_ms = 1e3 * static_cast<double>(spare_bytes_) / fastest_bytes_per_s;
  next_look_ = std::clamp(milliseconds(std::lround(std::min(spare_ms, 1e6))), look_period_min,
                          look_period_max);
}

// The greatest speed over the last moments. It fades slowly.
void MemoryPolicy::measure_rate(std::uint64_t usable_bytes, Clock::time_point now) {
  while (!samples_.empty() && now - samples_.front().time > rate_time_max) samples_.pop_front();
  double rate = 0;
  for (const Sample& sample : samples_) {
    if (now - sample.time < rate_time_min) continue;
    const std::uint64_t taken = less(sample.usable_bytes, usable_bytes);
    if (taken <= rate_noise_bytes) continue;
    rate = std::max(rate, static_cast<double>(taken) / seconds(now - sample.time));
  }
  if (!samples_.empty()) {
    const double passed_s = seconds(now - samples_.back().time);
    taken_bytes_per_s_ *= std::exp2(-passed_s / rate_half_life_s);
  }
  taken_bytes_per_s_ = std::max(rate, taken_bytes_per_s_);
  samples_.push_back({now, usable_bytes});
}

void MemoryPolicy::look(const MemorySigns& signs, Clock::time_point now) {
  const auto is_many = [](std::optional<std::uint64_t> pages) { return pages > refaults_max; };
  const bool thrashes = is_many(topology::growth(refaults_, signs.refaults)) &&
                        (!signs.recent_refaults ||
                         is_many(topology::growth(recent_refaults_, signs.recent_refaults)));
  refaults_ = signs.refaults;
  recent_refaults_ = signs.recent_refaults;
  const bool is_of_others = signs.is_pressure_of_machine && spare_bytes_ > ample_bytes;
  const bool is_pressed =
      signs.pressure_percent && *signs.pressure_percent > pressure_percent_max && !is_of_others;
  if (thrashes || is_pressed) shrink(less(limit_bytes_, relief_bytes), now);
}

void MemoryPolicy::shrink(std::uint64_t target_bytes, Clock::time_point now) {
  base::check(target_bytes <= limit_bytes_, "a limit is raised by a shortage of memory");
  last_shortage_ = now;
  if (limit_bytes_ - target_bytes < change_bytes_min && target_bytes != 0) return;
  limit_bytes_ = target_bytes;
  if (has_grown_) calm_ = std::min(2 * calm_, calm_max);
  has_grown_ = false;
}

void MemoryPolicy::grow(std::uint64_t target_bytes, Clock::time_point now) {
  base::check(limit_bytes_ <= target_bytes && target_bytes <= pinned_bytes_,
              "weights are to be pinned beyond the plan");
  const bool is_worth_it = target_bytes - limit_bytes_ >= change_bytes_min ||
                           (target_bytes == pinned_bytes_ && limit_bytes_ != pinned_bytes_);
  if (!is_worth_it || now - last_shortage_ < calm_ || now - last_piece_ < piece_period) return;
  limit_bytes_ += std::min(piece_bytes, target_bytes - limit_bytes_);
  last_piece_ = now;
  has_grown_ = true;
  if (limit_bytes_ == pinned_bytes_) calm_ = calm_min;
}

}  // namespace sluice::engine
