#include "core/http/api/metrics.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>

namespace sluice::http {

void TimeHistogram::add(double seconds) {
  const auto at = std::ranges::lower_bound(bounds_s, seconds);
  ++counts_[static_cast<std::size_t>(at - bounds_s.begin())];
  sum_s_ += seconds;
}

void MetricsText::begin(std::string_view name, std::string_view help, std::string_view type) {
  if (begun_ == name) return;
  begun_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::value(std::string_view name, std::string_view labels, double value) {
  text_ += name;
  if (!labels.empty()) text_ += fmt::format("{{{}}}", labels);
  text_ += fmt::format(" {}\n", value);
}

MetricsText& MetricsText::counter(std::string_view name, std::string_view help, double amount,
                                  std::string_view labels) {
  begin(name, help, "counter");
  value(name, labels, amount);
  return *this;
}

MetricsText& MetricsText::gauge(std::string_view name, std::string_view help, double amount,
                                std::string_view labels) {
  begin(name, help, "gauge");
  value(name, labels, amount);
  return *this;
}

MetricsText& MetricsText::histogram(std::string_view name, std::string_view help,
                                    const TimeHistogram& times) {
  begin(name, help, "histogram");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < times.counts().size(); ++i) {
    below += times.counts()[i];
    const bool is_last = i == TimeHistogram::bounds_s.size();
    const std::string bound = is_last ? "+Inf" : fmt::format("{}", TimeHistogram::bounds_s[i]);
    value(fmt::format("{}_bucket", name), fmt::format("le=\"{}\"", bound),
          static_cast<double>(below));
  }
  value(fmt::format("{}_sum", name), {}, times.sum_s());
  value(fmt::format("{}_count", name), {}, static_cast<double>(below));
  return *this;
}

}  // namespace sluice::http
