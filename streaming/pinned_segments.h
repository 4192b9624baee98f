// The segments of a tape that stay in memory, and how many of them may, which can change at any
// moment.
//
// Segments lie in one arena, in the order in which a growing budget pins them
// (streaming/residency.h): the segments that may stay are a prefix of that order. When the limit
// falls, what lies behind it is given back to the system at once, in the middle of a step too; a
// segment that the step holds is given back when it is released. When the limit rises again,
// nothing happens by itself: the thread that leads the steps copies segments in as they pass
// through its hands.
//
// Threads: limit() and the functions that only tell something may be called by any thread; the rest
// belongs to the thread that leads the steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "streaming/arena.h"
#include "streaming/populate.h"

namespace sluice::streaming {

class PinnedSegments {
 public:
  // `bytes`: of each segment, by turn; what it takes in memory. `order`: the turns that may be
  // pinned, the first to be pinned first. Reserves addresses, and no memory. Throws
  // std::system_error when there are not enough of them.
  PinnedSegments(std::span<const std::uint64_t> bytes, std::span<const std::size_t> order);

  // From now on no more than this many bytes stay, in whole segments; at first all may.
  void limit(std::uint64_t bytes);

  std::uint64_t bytes() const;  // that are pinned now
  bool is_pinned(std::size_t turn) const;
  // The first turn from `turn` on that is not pinned; the number of turns when there is none.
  std::size_t next_streamed(std::size_t turn) const;
  std::uint64_t huge_page_bytes() const { return memory_.huge_page_bytes(); }  // for reports

  // Has threads of their own touch the memory up to the limit, ahead of copies, until told to stop
  // or until the limit falls.
  void populate(unsigned threads);
  void stop_populating();

  // The bytes of a segment, which stay until release(); null when it is not pinned. Throws
  // std::logic_error when it is held already.
  const std::byte* acquire(std::size_t turn);
  // Returns false, and does nothing, when the segment is not held.
  bool release(std::size_t turn);

  // May this segment be pinned, as far as the limit goes now?
  bool may_pin(std::size_t turn) const;
  // Where to copy a segment that is not pinned and may be; else null. It is pinned from end_copy()
  // on, unless the limit has fallen below it meanwhile.
  std::byte* begin_copy(std::size_t turn);
  void end_copy(std::size_t turn);

 private:
  enum class State : std::uint8_t {
    streamed,
    copying,
    pinned,
    held,
    doomed,  // copying or held, and to be given back after that
  };

  static constexpr std::size_t nowhere = ~std::size_t{0};

  // A place in the arena, one for each turn of the order.
  struct Place {
    std::size_t turn = 0;
    std::uint64_t begin = 0, end = 0;
    State state = State::streamed;
  };

  // A place by turn, or null.
  const Place* find(std::size_t turn) const;
  Place* find(std::size_t turn);
  bool may_stay(const Place& place) const { return place.end <= limit_bytes_; }
  void give_back(std::size_t first, std::size_t last);
  void leave(Place& place);

  mutable std::mutex mutex_;  // guards all below but the content of the arena
  std::vector<Place> places_;
  std::vector<std::size_t> place_of_turn_;  // or nowhere
  std::uint64_t limit_bytes_;
  Arena memory_;
  std::optional<Populate> populate_;
};

}  // namespace sluice::streaming
