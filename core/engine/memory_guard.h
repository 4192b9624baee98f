// Keeps a running engine inside of the memory there is, when others take some of it.
//
// Pinned weights are anonymous memory that the system cannot take back: when it gets tight, the
// system would kill the process instead. So from time to time, between steps, the guard looks at
// the limits and at the signs of pressure, turns pinned weights into streamed ones while memory is
// short, and pins them again when it has been back for a while. Results do not change, speed does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/plan/memory_plan.h"
#include "streaming/streamed_tape.h"

namespace sluice::engine {

// The state of the memory around the process.
struct MemoryReading {
  std::uint64_t usable_bytes = 0;  // that the process may hold in all, what it holds included
  std::uint64_t refaults = 0;      // pages that came back soon after their eviction, since ever
  double pressure_percent = 0;     // of the last ten seconds, in which some task waited for memory
};

MemoryReading read_memory();

class MemoryGuard {
 public:
  using Clock = std::chrono::steady_clock;
  using Log = std::function<void(const std::string& line)>;

  // How often it looks, how long memory must have been free before it is pinned again, and the
  // least change worth making.
  static constexpr std::chrono::seconds period{1};
  static constexpr std::chrono::seconds calm{10};
  static constexpr std::uint64_t change_bytes_min = std::uint64_t{16} << 20;

  // Signs of a machine that is short of memory although no limit says so.
  static constexpr double pressure_percent_max = 10;
  static constexpr std::uint64_t refaults_max = 4096;  // in a period

  // `tape` must outlive the guard. `read` and the clock of check() are the system's but in tests.
  MemoryGuard(const plan::MemoryPlan& plan, streaming::StreamedTape& tape, Log log,
              std::function<MemoryReading()> read = read_memory);

  // To be called between steps. Does something at most once a period. Throws std::system_error
  // when weights that are pinned again cannot be read.
  void check(Clock::time_point now = Clock::now());

  std::uint64_t pinned_bytes() const { return pinned_bytes_; }  // the most that may be pinned now

 private:
  std::uint64_t target_bytes(const MemoryReading& reading) const;
  void pin(std::uint64_t bytes, const std::string& reason);

  streaming::StreamedTape& tape_;
  Log log_;
  std::function<MemoryReading()> read_;
  std::uint64_t others_bytes_;  // of the plan: everything but pinned weights
  std::uint64_t planned_pinned_bytes_;
  std::uint64_t pinned_bytes_;
  std::optional<MemoryReading> last_;
  Clock::time_point next_check_{};
  Clock::time_point last_shortage_{};
};

}  // namespace sluice::engine
