#include "core/engine/memory_guard.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::engine {
namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

// Kept free for the kernel's own pages and for what grows a little.
constexpr std::uint64_t margin_bytes = 16 * MiB;

// Given up at once when there are signs of pressure but no limit is near.
constexpr std::uint64_t relief_bytes = 64 * MiB;

}  // namespace

MemoryReading read_memory() {
  MemoryReading reading;
  const auto bound = topology::usable_memory(topology::read_machine());
  reading.usable_bytes = bound ? bound->usable_bytes() : std::numeric_limits<std::uint64_t>::max();
  const topology::CgroupMemory cgroup = topology::read_cgroup_memory();
  reading.refaults = cgroup.refaults_file.value_or(0) + cgroup.refaults_anon.value_or(0);
  const topology::MemoryPressure pressure = topology::read_memory_pressure();
  if (pressure.some) reading.pressure_percent = pressure.some->avg10_percent;
  return reading;
}

MemoryGuard::MemoryGuard(const plan::MemoryPlan& plan, streaming::StreamedTape& tape, Log log,
                         std::function<MemoryReading()> read)
    : tape_(tape),
      log_(std::move(log)),
      read_(std::move(read)),
      others_bytes_(plan.total_bytes() - plan.tape.pinned_bytes),
      planned_pinned_bytes_(plan.tape.pinned_bytes),
      pinned_bytes_(plan.tape.pinned_bytes) {}

void MemoryGuard::check(Clock::time_point now) {
  if (now < next_check_) return;
  next_check_ = now + period;
  const MemoryReading reading = read_();
  const std::uint64_t target = target_bytes(reading);
  last_ = reading;
  if (target < pinned_bytes_) {
    last_shortage_ = now;
    if (pinned_bytes_ - target < change_bytes_min && target != 0) return;
    pin(target, "memory is short");
  } else if (target > pinned_bytes_ && target - pinned_bytes_ >= change_bytes_min &&
             now - last_shortage_ >= calm) {
    pin(target, "memory is back");
  }
}

std::uint64_t MemoryGuard::target_bytes(const MemoryReading& reading) const {
  const std::uint64_t taken = others_bytes_ + margin_bytes;
  const std::uint64_t left = reading.usable_bytes - std::min(reading.usable_bytes, taken);
  // A plan may use its budget to the last MiB; the margin is for growth beyond it.
  std::uint64_t target =
      left + margin_bytes >= planned_pinned_bytes_ ? planned_pinned_bytes_ : left;
  const bool thrashes = last_ && reading.refaults - last_->refaults > refaults_max;
  if (thrashes || reading.pressure_percent > pressure_percent_max) {
    target = std::min(target, pinned_bytes_ - std::min(pinned_bytes_, relief_bytes));
  }
  return target;
}

void MemoryGuard::pin(std::uint64_t bytes, const std::string& reason) {
  const std::uint64_t before = tape_.plan().pinned_bytes;
  tape_.set_pinned_bytes(bytes);
  pinned_bytes_ = bytes;
  const std::uint64_t after = tape_.plan().pinned_bytes;
  if (log_ && after != before) {
    log_(fmt::format("{}: {} MiB of weights stay in memory instead of {} MiB", reason, after / MiB,
                     before / MiB));
  }
}

}  // namespace sluice::engine
