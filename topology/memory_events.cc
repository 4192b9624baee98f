#include "topology/memory_events.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "topology/file_root.h"

namespace sluice::topology {
namespace {

// So many thresholds, one every `threshold_step` bytes from the limit downwards.
constexpr std::uint64_t threshold_step = std::uint64_t{16} << 20, thresholds = 32;

// Pressure for 1 % of a window of half a second. The second one, with a window of two seconds, is
// for processes without the right to shorter windows.
constexpr std::array<std::string_view, 2> triggers = {"some 5000 500000", "some 20000 2000000"};

bool write_all(int descriptor, std::string_view text) {
  return ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

constexpr const char* machine_pressure = "/proc/pressure/memory";

std::filesystem::path pressure_of(const CgroupLevel& level) {
  return level.folder / "memory.pressure";
}

std::filesystem::path control_of(const CgroupLevel& level) {
  return level.folder / "cgroup.event_control";
}

}  // namespace

std::vector<std::filesystem::path> trigger_files(const std::optional<Cgroup>& group) {
  if (!group) return {machine_pressure};
  if (group->version == CgroupVersion::v2) return {pressure_of(group->levels.front())};
  std::vector<std::filesystem::path> files;
  for (const CgroupLevel& level : group->levels) files.push_back(control_of(level));
  return files;
}

MemoryEvents::MemoryEvents(const std::optional<Cgroup>& group)
    : wake_descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  polled_.push_back({base::Descriptor(wake_descriptor_), POLLIN, true});
  if (!group) {
    add_pressure(machine_pressure);
    return;
  }
  for (const CgroupLevel& level : group->levels) {
    if (group->version == CgroupVersion::v1) {
      add_thresholds(level);
    } else {
      add_changes(level.folder / "memory.events");
    }
  }
  if (group->version == CgroupVersion::v2) {
    add_pressure(pressure_of(group->levels.front()));
  }
}

void MemoryEvents::add_thresholds(const CgroupLevel& level) {
  const std::uint64_t limit =
      FileRoot().number(level.folder / "memory.limit_in_bytes").value_or(UINT64_MAX);
  if (limit > std::uint64_t{1} << 60) return;  // means "no limit"
  const std::string file = level.folder / "memory.usage_in_bytes";
  base::Descriptor usage(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const base::Descriptor control(::open(control_of(level).c_str(), O_WRONLY | O_CLOEXEC));
  base::Descriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!usage.is_open() || !control.is_open() || !event.is_open()) return;
  bool is_heard = false;
  for (std::uint64_t i = 0; i < thresholds; ++i) {
    const std::uint64_t below = i * threshold_step;
    if (below >= limit) break;
    is_heard |= write_all(control.number(), std::to_string(event.number()) + " " +
                                                std::to_string(usage.number()) + " " +
                                                std::to_string(limit - below));
  }
  if (!is_heard) return;
  held_open_.push_back(std::move(usage));
  polled_.push_back({std::move(event), POLLIN, true});
  sources_.push_back(file);
}

void MemoryEvents::add_pressure(const std::string& file) {
  for (const std::string_view trigger : triggers) {
    base::Descriptor descriptor(::open(file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!descriptor.is_open()) return;
    if (!write_all(descriptor.number(), trigger)) continue;
    polled_.push_back({std::move(descriptor), POLLPRI, false});
    sources_.push_back(file);
    return;
  }
}

void MemoryEvents::add_changes(const std::string& file) {
  base::Descriptor descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!descriptor.is_open()) return;
  if (::inotify_add_watch(descriptor.number(), file.c_str(), IN_MODIFY) < 0) return;
  polled_.push_back({std::move(descriptor), POLLIN, true});
  sources_.push_back(file);
}

void MemoryEvents::wait(std::chrono::milliseconds time) {
  std::vector<pollfd> polled;
  for (const Source& source : polled_) {
    polled.push_back({source.is_gone ? -1 : source.descriptor.number(), source.events, 0});
  }
  if (::poll(polled.data(), polled.size(), static_cast<int>(time.count())) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if ((polled[i].revents & (POLLERR | POLLNVAL)) != 0) polled_[i].is_gone = true;
    std::array<char, 4096> events;
    if ((polled[i].revents & POLLIN) == 0 || !polled_[i].is_consumed) continue;
    while (::read(polled_[i].descriptor.number(), events.data(), events.size()) > 0) {
    }
  }
}

void MemoryEvents::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(write_all(wake_descriptor_, {reinterpret_cast<const char*>(&one), sizeof one}));
}

}  // namespace sluice::topology
