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
// Experts come last in that order, since a step needs only a few of them: first expert 0 of every
// group, then expert 1 of every group. What a budget pins of them is the same number for each group
// (or one more for the first groups). Those are places; which experts lie in them may change
// (streaming/expert_policy.h).
//
// Segments from a given turn on may come first in that order, in the order of the tape: those that
// are wanted between steps, when they would have to wait for the disk.
//
// Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "streaming/tape.h"

namespace sluice::streaming {

inline constexpr std::size_t no_turn = ~std::size_t{0};

struct Residency {
  std::vector<std::size_t> pin_order;  // every turn once; the first `pinned_count` are pinned
  std::size_t pinned_count = 0;
  std::size_t dense_count = 0;  // how many of the pinned are no experts; they come first
  std::uint64_t pinned_bytes = 0;
  std::uint64_t pinned_expert_bytes = 0;  // the part of pinned_bytes that is experts

  // For each turn: is it pinned?
  std::vector<bool> pinned_turns() const;
};

// All turns in the order in which a growing budget pins them. Every suffix of the order of segments
// that are no experts (what is left of them to stream) is spread evenly over the tape.
// `segment_bytes` is in tape order, and so are `groups`. Those from turn `first_pinned` on come
// first.
std::vector<std::size_t> pin_order(std::span<const std::uint64_t> segment_bytes,
                                   std::span<const ExpertGroup> groups = {},
                                   std::size_t first_pinned = no_turn);

// The longest prefix of pin_order() that fits into the budget and has whole experts. The unused
// rest of the budget is smaller than the next segment, or expert, of the order.
Residency choose_residency(std::span<const std::uint64_t> segment_bytes,
                           std::uint64_t pinned_bytes_max, std::span<const ExpertGroup> groups = {},
                           std::size_t first_pinned = no_turn);

}  // namespace sluice::streaming
