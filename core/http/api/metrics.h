// Numbers for Prometheus, in its text format (version 0.0.4).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::http {

// Counts times in seconds in buckets from a millisecond to a minute.
//
// Threads: used by one thread.
class TimeHistogram {
 public:
  static constexpr std::array<double, 13> bounds_s = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,  0.5,    1,     2.5,  10,    60};
  void add(double seconds);
  const std::array<std::uint64_t, bounds_s.size() + 1>& counts() const { return counts_; }
  double sum_s() const { return sum_s_; }

 private:
  std::array<std::uint64_t, bounds_s.size() + 1> counts_ = {};
  double sum_s_ = 0;
};

class MetricsText {
 public:
  // `labels` such as `kind="anon",line="pinned weights"`. The help stands before the first value of
  // a name, so give all values of a name one after the other.
  MetricsText& counter(std::string_view name, std::string_view help, double value,
                       std::string_view labels = {});
  MetricsText& gauge(std::string_view name, std::string_view help, double value,
                     std::string_view labels = {});
  MetricsText& histogram(std::string_view name, std::string_view help, const TimeHistogram& times);

  std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);
  void value(std::string_view name, std::string_view labels, double value);

  std::string text_;
  std::string begun_;
};

}  // namespace sluice::http
