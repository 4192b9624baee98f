// Keeps a running engine within the available memory when other processes take some of it.
//
// Pinned weights are anonymous memory, which the system cannot take back; when memory gets short,
// it would kill the process instead. So the guard has a thread that watches the memory limits and
// lowers the bytes that the tape may keep pinned, at any time: while weights are loaded, or in the
// middle of a step. The thread looks at the limits when the kernel reports an event, and every few
// milliseconds while little memory is left; it looks at the signs of pressure every second. Weights
// are pinned again when memory has been free for a while. Speed changes, results do not. The
// numbers are in memory_policy.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "base/thread.h"
#include "core/engine/memory_policy.h"
#include "core/plan/memory_plan.h"
#include "streaming/streamed_tape.h"
#include "topology/cgroup.h"
#include "topology/memory_events.h"

namespace sluice::engine {

// The guard's source of information about memory, and of the time in which it changes.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual MemoryPolicy::Clock::time_point now() const { return MemoryPolicy::Clock::now(); }
  // The most bytes that the process may hold in all, including what it holds already.
  virtual std::uint64_t usable_bytes() = 0;
  // The tightest limit that was set for a group of processes with this one, when usable_bytes() was
  // called last; the largest number where there is none.
  virtual std::uint64_t group_limit_bytes() const {
    return std::numeric_limits<std::uint64_t>::max();
  }
  virtual MemorySigns signs() = 0;
  // Returns when memory may be getting short, after wake(), or after `time`. One thread waits. Any
  // thread may call wake(), even before the wait begins.
  virtual void wait(std::chrono::milliseconds time) = 0;
  virtual void wake() = 0;
};

// The source for this process on this machine.
class SystemMemory final : public MemorySource {
 public:
  SystemMemory();
  std::uint64_t usable_bytes() override;
  std::uint64_t group_limit_bytes() const override { return group_limit_bytes_; }
  MemorySigns signs() override;
  void wait(std::chrono::milliseconds time) override { events_.wait(time); }
  void wake() override { events_.wake(); }

 private:
  std::optional<topology::Cgroup> group_, unified_;
  std::uint64_t group_limit_bytes_ = 0;
  topology::MemoryEvents events_;
};

class MemoryGuard {
 public:
  using Clock = MemoryPolicy::Clock;
  using Log = std::function<void(const std::string& line)>;

  static constexpr std::chrono::seconds signs_period{1};
  static constexpr std::chrono::seconds log_period{1};

  // Owns none of its arguments; `tape` and `source` must outlive the guard. Starts the thread. If
  // the system cannot start one, between_steps() does its work, and the log says so.
  MemoryGuard(const plan::MemoryPlan& plan, streaming::StreamedTape& tape, MemorySource& source,
              Log log);
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

  // Called between steps, by the thread that runs them. Logs changes as one line, at most once a
  // period.
  void between_steps(Clock::time_point now = Clock::now());

 private:
  void watch();
  void try_look(Clock::time_point now);
  void look(Clock::time_point now);
  void limit_tape();

  streaming::StreamedTape& tape_;
  MemorySource& source_;
  Log log_;
  // Used by the guard's thread, if there is one.
  MemoryPolicy policy_;
  std::uint64_t group_limit_bytes_ = 0;  // at the last look
  // As the tape was told last.
  std::uint64_t tape_limit_bytes_ = std::numeric_limits<std::uint64_t>::max();
  Clock::time_point next_signs_{};
  std::uint64_t told_bytes_;  // pinned bytes, as logged last
  Clock::time_point next_log_{};

  std::atomic<bool> is_ending_ = false;
  base::Thread thread_;
};

}  // namespace sluice::engine
