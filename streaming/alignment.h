// Rounding to multiples, for page and disk alignments.
#pragma once

#include <cstdint>

#include "base/page.h"

namespace sluice::streaming {

using base::page_bytes;

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t multiple) {
  return value - value % multiple;
}

// The result must fit into 64 bits.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return round_down(value + multiple - 1, multiple);
}

}  // namespace sluice::streaming
