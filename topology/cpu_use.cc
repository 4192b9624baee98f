#include "topology/cpu_use.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace sluice::topology {
namespace {

double own_seconds_now() {
  timespec time{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

// "cpu  user nice system idle iowait irq softirq steal guest guest_nice", in ticks; the guests of
// this machine are in user and nice already.
std::optional<CpuTimes> read_cpu_times(const FileRoot& root, std::optional<double> own_seconds) {
  constexpr std::size_t fields = 8, idle = 3, waiting = 4;
  const std::optional<std::string> text = root.text("/proc/stat");
  if (!text || !text->starts_with("cpu ")) return std::nullopt;
  const std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
  const std::vector<std::string_view> words = pieces(line.substr(4), ' ');
  if (words.size() < fields) return std::nullopt;
  CpuTimes times;
  const auto ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (std::size_t i = 0; i < fields; ++i) {
    const std::optional<std::uint64_t> ticks = parse_number(words[i]);
    if (!ticks) return std::nullopt;
    const double seconds = static_cast<double>(*ticks) / ticks_per_s;
    times.all += seconds;
    if (i != idle && i != waiting) times.busy += seconds;
  }
  times.own = own_seconds ? *own_seconds : own_seconds_now();
  return times;
}

double share_of_others(const CpuTimes& before, const CpuTimes& after) {
  const double all = after.all - before.all;
  if (!(all > 0)) return 0;
  const double others = (after.busy - before.busy) - (after.own - before.own);
  return std::clamp(others / all, 0.0, 1.0);
}

std::optional<double> OthersWatch::share() const {
  const std::optional<CpuTimes> now = read_cpu_times();
  if (!begin_ || !now) return std::nullopt;
  return share_of_others(*begin_, *now);
}

}  // namespace sluice::topology
