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

// What the bytes of a group are multiplied in: the even ones, and the odd ones after them.
constexpr int group_parts = 2;
using GroupPart = I32x16;

template <int part>
inline GroupPart part_of(const ByteGroup& group) {
  return part == 0 ? even_bytes(group.bytes) : odd_bytes(group.bytes);
}

// Adds to each lane the products of a part of its bytes with those words of the four that belong to
// it.
template <int part>
inline void add_part(GroupSums& sums, const GroupPart& bytes, const std::int16_t* four) {
  add_products(sums, bytes, broadcast_pair(four + 2 * part));
}

inline I32x16 total(const GroupSums& sums, const I32x16&) {
  return sums;
}

}  // namespace
}  // namespace sluice::kernels
