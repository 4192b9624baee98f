// How much of the weights may stay in memory while others take some of it: the arithmetic of the
// memory guard, without threads, files or clocks.
//
// What the process may hold, less the rest of its plan, is left for pinned weights. Memory that
// others take faster than it can be given back would end in a kill, so beside it a reserve is kept
// that grows with the speed at which memory has been going lately. What was given up comes back
// after some quiet time, piece by piece; and the more often that was in vain, the later.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace sluice::engine {

// Signs that the system is short of memory although no limit says so; absent where the kernel does
// not tell.
struct MemorySigns {
  std::optional<std::uint64_t> refaults;   // pages that came back soon after eviction, since ever
  std::optional<double> pressure_percent;  // of ten seconds, in which some task waited for memory
};

class MemoryPolicy {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

  // Kept free for the kernel's own pages and for what grows a little, as soon as memory is short.
  static constexpr std::uint64_t margin_bytes = 16 * MiB;
  // The reserve is what others take, at the speed at which they took it last, in this time. What
  // is less than the minimum is left to the margin, and what is more than the maximum was taken at
  // once, or a limit fell.
  static constexpr std::chrono::milliseconds horizon{200};
  static constexpr std::uint64_t reserve_bytes_min = 4 * MiB, reserve_bytes_max = 256 * MiB;
  // Given up at once when there are signs of shortage but no limit is near.
  static constexpr std::uint64_t relief_bytes = 64 * MiB;
  // Less is not worth a change.
  static constexpr std::uint64_t change_bytes_min = 8 * MiB;
  // Memory comes back in such pieces, one a period, after it has been there for the calm time;
  // which doubles, up to its maximum, whenever a piece has to be given up again.
  static constexpr std::uint64_t piece_bytes = 64 * MiB;
  static constexpr std::chrono::milliseconds piece_period{500};
  static constexpr std::chrono::seconds calm_min{5}, calm_max{160};

  static constexpr double pressure_percent_max = 10;
  static constexpr std::uint64_t refaults_max = 4096;  // from one look() at the signs to the next

  // `rest_bytes`: what the plan has beside pinned weights. `pinned_bytes`: of the plan, the most
  // that is ever allowed.
  MemoryPolicy(std::uint64_t rest_bytes, std::uint64_t pinned_bytes);

  // Looks at what the process may hold in all, what it holds already included.
  void look(std::uint64_t usable_bytes, Clock::time_point now);
  // Looks at the signs: about once a second.
  void look(const MemorySigns& signs, Clock::time_point now);

  // What may be pinned now.
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  // How soon to look again: the less is left, the sooner.
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
  std::chrono::milliseconds next_look_{0};
  std::deque<Sample> samples_;    // of the last moments, the oldest first
  double taken_bytes_per_s_ = 0;  // by others; falls slowly
  std::optional<std::uint64_t> refaults_;
  Clock::time_point last_shortage_{};
  Clock::time_point last_piece_{};
  std::chrono::seconds calm_{calm_min};
  bool has_grown_ = false;  // since the last shortage
};

}  // namespace sluice::engine
