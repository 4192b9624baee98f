// How many bytes of the weights may stay pinned while other processes take memory: the arithmetic
// of the memory guard, without threads, files or clocks.
//
// Pinned weights may have what the process may hold, less the rest of its plan and less a reserve.
// The reserve grows with the speed at which memory has been disappearing: if others took memory
// faster than it can be given back, the process would be killed. After some quiet time the limit
// rises again, piece by piece. Each time a piece has to be given up again, the next attempt waits
// longer.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace sluice::engine {

// Signs that the system is short of memory although no limit says so. Absent where the kernel does
// not report them.
struct MemorySigns {
  std::optional<std::uint64_t> refaults;   // pages read again after eviction, a running total
  std::optional<double> pressure_percent;  // of ten seconds: time that some task waited for memory
  // Those of pages that had been evicted a short time before, a running total. The others say
  // nothing of the present.
  std::optional<std::uint64_t> recent_refaults = std::nullopt;
  // The pressure is that of all groups of the machine. One of them that is at its own limit makes
  // some, so it counts only while little memory is left.
  bool is_pressure_of_machine = false;
};

class MemoryPolicy {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

  // Kept free, once memory is short, for the kernel's own pages and for small growth.
  static constexpr std::uint64_t margin_bytes = 16 * MiB;
  // The reserve is the memory that others would take in this time at their latest speed. A reserve
  // below the minimum counts as none: the margin covers it. The maximum caps it: a higher speed
  // means that memory was taken at once.
  static constexpr std::chrono::milliseconds horizon{200};
  static constexpr std::uint64_t reserve_bytes_min = 4 * MiB, reserve_bytes_max = 256 * MiB;
  // Given up at once when there are signs of shortage while no limit is near.
  static constexpr std::uint64_t relief_bytes = 64 * MiB;
  // Smaller changes are not worth making.
  static constexpr std::uint64_t change_bytes_min = 8 * MiB;
  // The limit rises in pieces of this size, one a period, once the memory has been free for the
  // calm time. The calm time doubles, up to its maximum, whenever a piece has to be given up again.
  static constexpr std::uint64_t piece_bytes = 64 * MiB;
  static constexpr std::chrono::milliseconds piece_period{500};
  static constexpr std::chrono::seconds calm_min{5}, calm_max{160};

  static constexpr double pressure_percent_max = 10;
  // With more memory than this left, the pressure of the machine is that of others.
  static constexpr std::uint64_t ample_bytes = 512 * MiB;
  // From one look() at the signs to the next, of both counters.
  static constexpr std::uint64_t refaults_max = 4096;

  // `rest_bytes` is what the plan has besides pinned weights. `pinned_bytes` is the plan's bytes of
  // pinned weights; the limit never exceeds them.
  MemoryPolicy(std::uint64_t rest_bytes, std::uint64_t pinned_bytes);

  // Updates the limit from the bytes that the process may hold in all, including those it holds
  // already.
  void look(std::uint64_t usable_bytes, Clock::time_point now);
  // Says that the next look is under another limit of a group: what it finds less than those before
  // was taken by nobody, and says nothing of what others will take.
  void group_limit_changed() { samples_.clear(); }
  // Updates the limit from the signs; call it about once a second.
  void look(const MemorySigns& signs, Clock::time_point now);

  // How many bytes may be pinned now.
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  // The time until the next look: the less memory is left, the shorter.
  std::chrono::milliseconds next_look() const { return next_look_; }

 private:
  struct Sample {
    Clock::time_point time;
    std::uint64_t usable_bytes;
  };

  void measure_rate(std::uint64_t usable_bytes, Clock::time_point now);
  void shrink(std::uint64_t target_bytes, Clock::time_point now);
  void grow(std::uint64_t target_bytes, Clock::time_point now);

  std::uint64_t rest_bytes_;
  std::uint64_t pinned_bytes_;
  std::uint64_t limit_bytes_;
  std::uint64_t spare_bytes_ = 0;             // left at the last look
  std::chrono::milliseconds next_look_{100};  // before the first look
  std::deque<Sample> samples_;                // of the last moments, oldest first
  double taken_bytes_per_s_ = 0;              // by other processes; decays slowly
  std::optional<std::uint64_t> refaults_, recent_refaults_;
  Clock::time_point last_shortage_{};
  Clock::time_point last_piece_{};
  std::chrono::seconds calm_{calm_min};
  bool has_grown_ = false;  // since the last shortage
};

}  // namespace sluice::engine
