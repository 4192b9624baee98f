// How far a batch is, how fast, and how long it will take, as text.
//
// Threads: used by one.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace sluice::batch {

// "2 h 05 min", "3 min 20 s", "12 s".
std::string format_duration(double seconds);

class ProgressMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // Speeds are those of this time, so that they follow what happens.
  static constexpr std::chrono::seconds window{60};

  // `rows_done` are there already and say nothing about the speed.
  ProgressMeter(std::uint64_t rows, std::uint64_t rows_done, Clock::time_point now = Clock::now());

  // `tokens`: evaluated since the job began, prompts and text together.
  void update(std::uint64_t rows_done, std::uint64_t tokens, Clock::time_point now = Clock::now());

  double tokens_per_s() const;
  std::optional<double> seconds_left() const;  // nothing before there is a speed

  // "120 of 500 rows (24 %), 35.2 tokens/s, 3 min 20 s left", and with a bar before it.
  std::string line() const;
  std::string bar(std::size_t width = 24) const;

 private:
  struct Sample {
    Clock::time_point time;
    std::uint64_t rows_done;
    std::uint64_t tokens;
  };
  double seconds() const;

  std::uint64_t rows_;
  std::deque<Sample> samples_;  // the newest last; at least one
};

}  // namespace sluice::batch
