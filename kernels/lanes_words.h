// Products of bytes and words for attention, in tiers that widen bytes to words; each includes it
// at its end. lanes_avx512.h has the same names in another form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

// A tier may take bytes as unsigned ones that are so much larger.
constexpr std::int32_t byte_offset = 0;

// Stores sixteen words as add_group() reads them, in the place of sixteen 16-bit integers.
inline void store_words(I32x16 words, std::int16_t* p) {
  store(words, p);
}

// Four bytes for each lane.
struct ByteGroup {
  I16x32 low, high;
};

// Loads `count` (1..64) bytes. Lanes without bytes have any products.
inline ByteGroup load_group(const std::int8_t* p, std::size_t count) {
  constexpr std::size_t half = 2 * lanes;
  return {widen(p, count), widen(p + half, count > half ? count - half : 0)};
}

struct GroupSums {
  I32x16 low, high;
};

// Adds to each lane the products of its bytes with four words.
inline void add_group(GroupSums& sums, const ByteGroup& bytes, const std::int16_t* four) {
  const I16x32 words = broadcast_four(four);
  add_products(sums.low, bytes.low, words);
  add_products(sums.high, bytes.high, words);
}

inline I32x16 total(const GroupSums& sums) {
  return fold(sums.low, sums.high);
}

}  // namespace
}  // namespace sluice::kernels
