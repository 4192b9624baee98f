// What streamed segments were when they were first read, so that bytes that are read again and
// differ are noticed: of a file that was written to although its time says otherwise (a network
// file system tells a new time late, and a tool may put the old one back), or of a disk that
// returned others.
//
// A sum covers a cache line of every page of the file, the least that a file system or a disk
// exchanges: what changes smaller parts may go unnoticed. Reading these lines costs less than a
// hundredth of what the disk takes for the segment; reading all of them would cost as much as a
// product in memory.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::streaming {

class SegmentSums {
 public:
  explicit SegmentSums(std::size_t turns) : sums_(turns) {}

  // Whether the bytes of a segment, which lie at this offset of its file, are those with which this
  // was called for its turn first.
  bool are_as_before(std::size_t turn, std::uint64_t offset, std::span<const std::byte> bytes);

 private:
  std::vector<std::optional<std::uint64_t>> sums_;  // by turn; empty: not seen
};

}  // namespace sluice::streaming
