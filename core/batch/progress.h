// How far a batch is, how fast, and how long it will take, as text.
//
// Threads: used by one thread.
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

  // Speeds are averages over this time, so that they follow changes.
  static constexpr std::chrono::seconds window{60};

  // `rows_done` rows were done before, and do not count for the speed.
  ProgressMeter(std::uint64_t rows, std::uint64_t rows_done, Clock::time_point now = Clock::now());

  // `tokens` counts all tokens evaluated since the job began, of prompts and of generated text.
  void update(std::uint64_t rows_done, std::uint64_t tokens, Clock::time_point now = Clock::now());

  double tokens_per_s() const;
  std::optional<double> seconds_left() const;  // nothing until there is a speed

  // line(): "120 of 500 rows (24 %), 35.2 tokens/s, 3 min 20 s left". The other puts a bar before
  // it.
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
