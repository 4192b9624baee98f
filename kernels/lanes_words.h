// Products of bytes and words for attention, in tiers that multiply words in pairs; each includes
// it at its end. lanes_neon.h has the same names in other forms.
//
// A lane has four bytes. The even ones and the odd ones become a pair of words each, which takes
// shifts alone. So of every four words the second and the third change places when they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice::kernels {
namespace {

// Four bytes for each lane.
struct ByteGroup {
  I32x16 bytes;
};

// Loads four bytes for each of `count` (1..16) lanes.
inline ByteGroup load_group(const std::int8_t* p, std::size_t count) {
  return {load_bits(reinterpret_cast<const float*>(p), count)};
}

using GroupSums = I32x16;

// Sums of products that begin with `start`; total() is given it again, since a tier may add it
// last.
inline GroupSums begin_sums(I32x16 start) {
  return start;
}

// sums[i] += the products of the bytes of group i % vectors with four words, which are in all
// lanes: those at words[i / vectors] + at. The even bytes come first and the odd ones after them,
// so that sixteen registers are enough for eight sums.
template <int vectors, int heads, int... i>
[[gnu::always_inline]] inline void add_each(std::integer_sequence<int, i...>,
                                            GroupSums (&sums)[heads * vectors],
                                            const ByteGroup (&groups)[vectors],
                                            const std::int16_t* const (&words)[heads],
                                            std::size_t at) {
  I32x16 half[vectors];
  for (int v = 0; v < vectors; ++v) half[v] = even_bytes(groups[v].bytes);
  (add_products(sums[i], half[i % vectors], broadcast_pair(words[i / vectors] + at)), ...);
  for (int v = 0; v < vectors; ++v) half[v] = odd_bytes(groups[v].bytes);
  (add_products(sums[i], half[i % vectors], broadcast_pair(words[i / vectors] + at + 2)), ...);
}

inline I32x16 total(const GroupSums& sums, const I32x16&) {
  return sums;
}

}  // namespace
}  // namespace sluice::kernels
