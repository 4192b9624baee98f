#include "core/engine/memory_guard.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::engine {
namespace {

std::uint64_t tightest_limit(const std::vector<topology::MemoryGroup>& groups) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const topology::MemoryGroup& group : groups) {
    for (const std::optional<std::uint64_t>& limit :
         {group.limit_bytes, group.high_bytes, group.hierarchical_limit_bytes}) {
      least = std::min(least, limit.value_or(least));
    }
  }
  return least;
}

}  // namespace

SystemMemory::SystemMemory()
    : group_(topology::find_cgroup({}, "memory")),
      unified_(topology::find_unified_cgroup({})),
      events_(group_) {}

std::uint64_t SystemMemory::usable_bytes() {
  const topology::Machine limits = topology::read_memory_limits({}, group_);
  group_limit_bytes_ = tightest_limit(limits.memory_groups);
  const auto bound = topology::usable_memory(limits);
  return bound ? bound->usable_bytes() : std::numeric_limits<std::uint64_t>::max();
}

MemorySigns SystemMemory::signs() {
  MemorySigns signs;
  signs.refaults = topology::read_cgroup_memory(group_).refaults();
  signs.recent_refaults = topology::read_recent_refaults(unified_);
  const topology::MemoryPressure pressure = topology::read_memory_pressure(unified_);
  if (pressure.some) signs.pressure_percent = pressure.some->avg10_percent;
  signs.is_pressure_of_machine = pressure.is_of_machine;
  return signs;
}

MemoryGuard::MemoryGuard(const plan::MemoryPlan& plan, streaming::StreamedTape& tape,
                         MemorySource& source, Log log)
    : tape_(tape),
      source_(source),
      log_(std::move(log)),
      policy_(plan.total_bytes() - plan.tape.pinned_bytes, plan.tape.pinned_bytes),
      told_bytes_(plan.tape.pinned_bytes) {
  try {
    thread_ = base::Thread([this] { watch(); });
  } catch (const std::system_error& error) {
    if (log_) log_(fmt::format("memory is watched between steps only: {}", error.what()));
  }
}

MemoryGuard::~MemoryGuard() {
  is_ending_ = true;
  source_.wake();
  thread_.join();
}

void MemoryGuard::watch() {
  while (!is_ending_) {
    try_look(source_.now());
    source_.wait(policy_.next_look());
  }
}

void MemoryGuard::try_look(Clock::time_point now) {
  try {
    look(now);
  } catch (...) {  // what is not known now, the next look may find
  }
}

void MemoryGuard::look(Clock::time_point now) {
  const std::uint64_t usable = source_.usable_bytes(), limit = source_.group_limit_bytes();
  if (std::exchange(group_limit_bytes_, limit) != limit) policy_.group_limit_changed();
  policy_.look(usable, now);
  // At once: reading the signs may fail, most likely where memory is short.
  limit_tape();
  if (now >= next_signs_) {
    next_signs_ = now + signs_period;
    policy_.look(source_.signs(), now);
    limit_tape();
  }
}

// Most looks change nothing, and the tape is in use.
void MemoryGuard::limit_tape() {
  const std::uint64_t limit = policy_.limit_bytes();
  if (limit == tape_limit_bytes_) return;
  tape_.limit_pinned_bytes(limit);
  tape_limit_bytes_ = limit;
}

void MemoryGuard::between_steps(Clock::time_point now) {
  if (!thread_.joinable()) try_look(now);
  if (now < next_log_ || !log_) return;
  const std::uint64_t pinned = tape_.pinned_bytes_allowed();
  if (pinned == told_bytes_) return;
  log_(fmt::format("{}: {} MiB of weights stay in memory instead of {} MiB",
                   pinned < told_bytes_ ? "memory is short" : "memory is back",
                   pinned / MemoryPolicy::MiB, told_bytes_ / MemoryPolicy::MiB));
  told_bytes_ = pinned;
  next_log_ = now + log_period;
}

}  // namespace sluice::engine
