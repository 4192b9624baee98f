// Whether bytes keep to a least rate. It is looked at in periods, one after the other, so that a
// client which was fast at first cannot be slow for long after it.
//
// Threads: used by one thread.
#pragma once

#include <chrono>
#include <cstddef>

namespace sluice::http {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // In each period at least `bytes_min` bytes have to move.
  Pace(Clock::duration period, std::size_t bytes_min) : period_(period), bytes_min_(bytes_min) {}

  void begin(Clock::time_point now) {
    began_ = now;
    bytes_ = 0;
  }
  void add(std::size_t bytes) { bytes_ += bytes; }

  // Time in which the other side could do nothing does not count.
  void forgive(Clock::duration time) { began_ += time; }

  // To be asked more often than once in a period.
  bool is_too_slow(Clock::time_point now) {
    if (now - began_ < period_) return false;
    if (bytes_ < bytes_min_) return true;
    begin(now);
    return false;
  }

 private:
  Clock::duration period_;
  std::size_t bytes_min_;
  Clock::time_point began_ = Clock::now();
  std::size_t bytes_ = 0;
};

}  // namespace sluice::http
