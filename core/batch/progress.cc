#include "core/batch/progress.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace sluice::batch {
namespace {

constexpr std::chrono::milliseconds sample_period{500};

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(std::ceil(seconds), 0.0, 1e12));
  const std::uint64_t minutes = whole / 60, hours = minutes / 60;
  if (hours >= 48) return fmt::format("{} days", (hours + 12) / 24);
  if (hours != 0) return fmt::format("{} h {:02} min", hours, minutes % 60);
  if (minutes != 0) return fmt::format("{} min {:02} s", minutes, whole % 60);
  return fmt::format("{} s", whole);
}

ProgressMeter::ProgressMeter(std::uint64_t rows, std::uint64_t rows_done, Clock::time_point now)
    : rows_(rows), samples_{{now, rows_done, 0}} {}

void ProgressMeter::update(std::uint64_t rows_done, std::uint64_t tokens, Clock::time_point now) {
  const Sample sample{now, rows_done, tokens};
  const bool is_early =
      samples_.size() > 1 && now - samples_[samples_.size() - 2].time < sample_period;
  if (is_early) {
    samples_.back() = sample;
  } else {
    samples_.push_back(sample);
  }
  while (samples_.size() > 2 && now - samples_[1].time >= window) samples_.pop_front();
}

double ProgressMeter::seconds() const {
  return std::chrono::duration<double>(samples_.back().time - samples_.front().time).count();
}

double ProgressMeter::tokens_per_s() const {
  const double time = seconds();
  if (!(time > 0)) return 0;
  return static_cast<double>(samples_.back().tokens - samples_.front().tokens) / time;
}

std::optional<double> ProgressMeter::seconds_left() const {
  const std::uint64_t done = samples_.back().rows_done - samples_.front().rows_done;
  if (done == 0) return std::nullopt;
  return seconds() * static_cast<double>(rows_ - samples_.back().rows_done) /
         static_cast<double>(done);
}

std::string ProgressMeter::line() const {
  const std::uint64_t done = samples_.back().rows_done;
  std::string text = fmt::format("{} of {} rows ({} %), {:.1f} tokens/s", done, rows_,
                                 rows_ == 0 ? 100 : 100 * done / rows_, tokens_per_s());
  if (const auto left = seconds_left()) text += fmt::format(", {} left", format_duration(*left));
  return text;
}

std::string ProgressMeter::bar(std::size_t width) const {
  const std::uint64_t done = samples_.back().rows_done;
  const std::size_t filled = rows_ == 0 ? width : width * done / rows_;
  return fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(width - filled, '.'),
                     line());
}

}  // namespace sluice::batch
