// The segments of a tape that stay in memory, under a limit that can change at any moment.
//
// Segments lie in one arena, in the order in which a growing budget pins them
// (streaming/residency.h), so the segments that may stay are a prefix of that order. When the limit
// falls, the memory beyond it is returned to the system at once, even in the middle of a step; only
// a segment that the step holds is kept until it is released. When the limit rises, nothing happens
// at once: the thread that leads the steps copies each streamed segment in when it releases it.
//
// Threads: limit() and the const functions may be called by any thread; all others only by the
// thread that leads the steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "streaming/arena.h"
#include "streaming/populate.h"

namespace sluice::streaming {

class PinnedSegments {
 public:
  // `bytes[turn]` is what a segment takes in memory. `order` lists the turns that may be pinned, in
  // the order of pinning. Reserves addresses but no memory. Throws std::system_error when there are
  // not enough addresses.
  PinnedSegments(std::span<const std::uint64_t> bytes, std::span<const std::size_t> order);

  // Limits the pinned segments to this many bytes from now on. Until the first call there is no
  // limit.
  void limit(std::uint64_t bytes);
  std::uint64_t limit_bytes() const;

  std::uint64_t bytes() const;  // of the segments that are pinned now
  // Of all places, for which addresses are reserved.
  std::uint64_t capacity_bytes() const { return memory_.committed_bytes(); }
  bool is_pinned(std::size_t turn) const;
  // The first turn >= `turn` that is not pinned; the number of turns when there is none.
  std::size_t next_streamed(std::size_t turn) const;
  std::uint64_t huge_page_bytes() const { return memory_.huge_page_bytes(); }  // for reports

  // Starts threads that touch the memory of the first `count` segments of the order, up to the
  // limit, before segments are copied there. They end at stop_populating(), or when the limit
  // falls.
  void populate(std::size_t count, unsigned threads);
  void stop_populating();

  // The bytes of a segment, valid until release(); null when it is not pinned. Throws
  // std::logic_error when it is held or copied already.
  const std::byte* acquire(std::size_t turn);
  // Returns false, and does nothing, when the segment is not held.
  bool release(std::size_t turn);

  // Where the place of a segment ends, in bytes from the begin of the first; null when it has none.
  // It is pinned only under a limit of at least as much.
  std::optional<std::uint64_t> place_end(std::size_t turn) const;
  // Whether the present limit allows this segment to be pinned. False for one without a place.
  bool may_pin(std::size_t turn) const;
  // Exchanges the places of two segments of the same size; one of them may have none. What lay
  // there is no longer pinned. Neither may be held.
  void exchange(std::size_t a, std::size_t b);
  // Where to copy a segment that is not pinned; null when it is, or when the limit does not allow
  // it. The segment is pinned from end_copy() on, unless the limit has fallen below it meanwhile.
  std::byte* begin_copy(std::size_t turn);
  std::byte* copied_to(std::size_t turn);  // between the two; else null
  void end_copy(std::size_t turn);

 private:
  enum class State : std::uint8_t {
    streamed,
    copying,
    pinned,
    held,
  };

  static constexpr std::size_t nowhere = ~std::size_t{0};

  // A place in the arena, at first one for each turn of the order.
  struct Place {
    std::uint64_t begin = 0, end = 0;
    State state = State::streamed;
    bool is_doomed = false;  // its memory is returned to the system after the copy or the hold
  };

  // A place by turn, or null.
  const Place* find(std::size_t turn) const SLUICE_REQUIRES(mutex_);
  Place* find(std::size_t turn) SLUICE_REQUIRES(mutex_);
  bool may_stay(const Place& place) const SLUICE_REQUIRES(mutex_) {
    return place.end <= limit_bytes_;
  }
  bool is_in_use(std::size_t place) const SLUICE_REQUIRES(mutex_) {
    return places_[place].state != State::streamed;
  }
  // How many of the first `count` places may stay under the limit.
  std::size_t may_stay_of(std::size_t count) const SLUICE_REQUIRES(mutex_);
  void give_back(std::size_t first, std::size_t last) SLUICE_REQUIRES(mutex_);
  void leave(Place& place) SLUICE_REQUIRES(mutex_);

  const std::vector<std::uint64_t> bytes_of_turn_;
  Arena memory_;  // its content belongs to the leading thread
  mutable base::Mutex mutex_;
  std::vector<Place> places_ SLUICE_GUARDED_BY(mutex_);
  std::vector<std::size_t> place_of_turn_ SLUICE_GUARDED_BY(mutex_);  // or nowhere
  std::uint64_t limit_bytes_ SLUICE_GUARDED_BY(mutex_);
  std::optional<Populate> populate_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::streaming
