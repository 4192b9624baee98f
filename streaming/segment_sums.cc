#include "streaming/segment_sums.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <xxhash.h>

namespace sluice::streaming {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::uint64_t page_bytes = 4096;  // of a file, whatever the processor's are
constexpr std::uint64_t pages_ahead = 12;   // as many lines as a core waits for at a time

// Where the line of a page lies in the file. Each page gives another of its lines, or all would lie
// in the same set of a cache.
std::uint64_t line_of(std::uint64_t page) {
  constexpr std::uint64_t lines = page_bytes / line_bytes;
  constexpr std::uint64_t step = 23;  // odd, so that all lines have their turn
  return page * page_bytes + page * step % lines * line_bytes;
}

std::uint64_t sum_of(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::array<std::byte, 4096> collected;  // a sum of many lines costs less than sums of each
  std::size_t count = 0;
  std::uint64_t sum = bytes.size();
  const auto add = [&] { sum = XXH3_64bits_withSeed(collected.data(), count, sum), count = 0; };
  const std::uint64_t end = offset + bytes.size();
  for (std::uint64_t page = offset / page_bytes; page * page_bytes < end; ++page) {
    // The hardware follows no such steps.
    if (const std::uint64_t ahead = line_of(page + pages_ahead); ahead < end) {
      __builtin_prefetch(bytes.data() + (ahead - offset));
    }
    // The part of the page that the segment has, which may be less than a line.
    const std::uint64_t first = std::max(offset, page * page_bytes);
    const std::uint64_t last = std::min(end, (page + 1) * page_bytes);
    const std::uint64_t taken = std::min<std::uint64_t>(line_bytes, last - first);
    const std::uint64_t at = std::clamp(line_of(page), first, last - taken);
    if (count + taken > collected.size()) add();
    std::memcpy(collected.data() + count, bytes.data() + (at - offset), taken);
    count += taken;
  }
  add();
  return sum;
}

}  // namespace

bool SegmentSums::are_as_before(std::size_t turn, std::uint64_t offset,
                                std::span<const std::byte> bytes) {
  const std::uint64_t sum = sum_of(offset, bytes);
  std::optional<std::uint64_t>& before = sums_.at(turn);
  if (!before) before = sum;
  return *before == sum;
}

}  // namespace sluice::streaming
