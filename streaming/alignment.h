// Rounding to multiples, for page and disk alignments.
#pragma once

#include <cstdint>

namespace sluice::streaming {

inline constexpr std::uint64_t page_bytes = 4096;

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t multiple) {
  return value - value % multiple;
}

// The result must fit into 64 bits.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return round_down(value + multiple - 1, multiple);
}

}  // namespace sluice::streaming
