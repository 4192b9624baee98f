// Which segments of a tape stay in memory.
//
// A cyclic scan defeats every rule that evicts by recency, so the choice is made once: a fixed part
// of the tape is pinned, the rest is streamed. The streamed segments are spread evenly over the
// bytes of the tape, so that the disk has the same work everywhere and the ring never runs empty.
//
// The choice is nested. There is one order of all segments, and a budget pins a prefix of it. So a
// larger budget never streams more bytes, and an arena that is filled in that order grows and
// shrinks only at its end.
//
// Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::streaming {

struct Residency {
  std::vector<std::size_t> pin_order;  // every turn once; the first `pinned_count` are pinned
  std::size_t pinned_count = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t streamed_bytes = 0;  // what each step reads

  // For each turn: is it pinned?
  std::vector<bool> pinned_turns() const;
};

// All turns in the order in which a growing budget pins them. Every suffix of the order (what is
// left to stream) is spread evenly over the tape. `segment_bytes` is in tape order.
std::vector<std::size_t> pin_order(std::span<const std::uint64_t> segment_bytes);

// The longest prefix of pin_order() that fits into the budget. The unused rest of the budget is
// smaller than the next segment of the order.
Residency choose_residency(std::span<const std::uint64_t> segment_bytes,
                           std::uint64_t pinned_bytes_max);

}  // namespace sluice::streaming
