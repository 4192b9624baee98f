// Keeps a running engine inside of the memory there is, when others take some of it.
//
// Pinned weights are anonymous memory that the system cannot take back: when it gets tight, the
// system would kill the process instead. So a thread of its own looks at the limits when the kernel
// says that it should, and every few milliseconds anyway where little is left, and at the signs of
// pressure every second, and limits what the tape keeps pinned: while weights are loaded, in the
// middle of a step, at any time. Pinned weights become streamed ones while memory is short, and are
// pinned again when it has been back for a while. Results do not change, speed does. What the
// numbers are is in memory_policy.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "core/engine/memory_policy.h"
#include "core/plan/memory_plan.h"
#include "streaming/streamed_tape.h"
#include "topology/cgroup.h"
#include "topology/memory_events.h"

namespace sluice::engine {

// Where the guard learns of the memory around the process.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // What the process may hold in all, what it holds already included.
  virtual std::uint64_t usable_bytes() = 0;
  virtual MemorySigns signs() = 0;
  // Returns when memory may be getting short, after wake(), or when the time is over. One thread
  // waits; any may wake it, also before it waits.
  virtual void wait(std::chrono::milliseconds time) = 0;
  virtual void wake() = 0;
};

// This process on this machine.
class SystemMemory final : public MemorySource {
 public:
  SystemMemory();
  std::uint64_t usable_bytes() override;
  MemorySigns signs() override;
  void wait(std::chrono::milliseconds time) override { events_.wait(time); }
  void wake() override { events_.wake(); }

 private:
  std::optional<topology::Cgroup> group_;
  topology::MemoryEvents events_;
};

class MemoryGuard {
 public:
  using Clock = MemoryPolicy::Clock;
  using Log = std::function<void(const std::string& line)>;

  static constexpr std::chrono::seconds signs_period{1};
  static constexpr std::chrono::seconds log_period{1};

  // None is owned; `tape` and `source` must outlive the guard. Starts the thread; where the system
  // has none to give, between_steps() looks instead.
  MemoryGuard(const plan::MemoryPlan& plan, streaming::StreamedTape& tape, MemorySource& source,
              Log log);
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

  // To be called between steps, by the thread that makes them: logs what has changed since, in one
  // line, once a period.
  void between_steps(Clock::time_point now = Clock::now());

 private:
  void watch();
  std::chrono::milliseconds look(Clock::time_point now);

  streaming::StreamedTape& tape_;
  MemorySource& source_;
  Log log_;
  MemoryPolicy policy_;  // of the thread, where there is one
  Clock::time_point next_signs_{};
  std::uint64_t told_bytes_;  // that are pinned, as the log has it
  Clock::time_point next_log_{};

  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::engine
