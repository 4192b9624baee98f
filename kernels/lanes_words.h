// Products of bytes and words for attention, in tiers that multiply words in pairs; each includes
// it at its end. lanes_neon.h has the same names in other forms.
//
// A lane has four bytes. The even ones and the odd ones become a pair of words each, which takes
// shifts alone. So of every four words the second and the third change places when they are stored.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

// Four bytes for each lane.
struct ByteGroup {
  I32x16 even, odd;
};

// Loads four bytes for each of `count` (1..16) lanes.
inline ByteGroup load_group(const std::int8_t* p, std::size_t count) {
  const I32x16 bytes = load_bits(reinterpret_cast<const float*>(p), count);
  return {even_bytes(bytes), odd_bytes(bytes)};
}

// Four words, for all lanes.
struct WordGroup {
  I32x16 even, odd;
};

inline WordGroup load_words(const std::int16_t* p) {
  return {broadcast_pair(p), broadcast_pair(p + 2)};
}

using GroupSums = I32x16;

// Sums of products that begin with `start`; total() is given it again, since a tier may add it
// last.
inline GroupSums begin_sums(I32x16 start) {
  return start;
}

// Adds to each lane the products of its bytes with the words.
inline void add_group(GroupSums& sums, const ByteGroup& bytes, const WordGroup& words) {
  add_products(sums, bytes.even, words.even);
  add_products(sums, bytes.odd, words.odd);
}

inline I32x16 total(const GroupSums& sums, const I32x16&) {
  return sums;
}

}  // namespace
}  // namespace sluice::kernels
