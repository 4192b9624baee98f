// Rows of cached keys and values as 8-bit integers, and the Hadamard transform that prepares them.
//
// A row of `size` numbers is stored as `size` int8 numbers and two scales, one for each half of the
// row: x[i] is approximately scale * q[i]. Scales are IEEE half floats. The first half of a row has
// 16 * ceil(size / 32) elements, so that the halves meet between two vectors of 16. A scale is
// max|x| / 127 rounded up to a half float, so no element clips; elements are quantised with the
// rounded scale. A half of zeros has the scale 1. If the half has an infinity or a NaN, or a number
// above 127 times the largest half float, its scale is infinite or NaN, so that products with the
// row show that something is wrong.
//
// A short row, of at most 16 elements, has one scale. In place of the second scale it has n more
// bits for each element, n = min(16 / size, 8), element 0 in the lowest bits: x[i] is approximately
// scale * (q[i] + bits[i] / 2^n). Short rows need the precision: fewer errors cancel in their sums.
//
// Rows lie in pages of 32 positions. Long rows are in the order in which attention multiplies them
// (kernels/attention_int8_impl.h), four products to a lane. Keys are
// [element / 4][position][element % 4], so that a lane is a position. Values are
// [half][position / 4][element of the half][position % 4], so that a lane is an element. Short rows
// are [position][element].
//
// Before they are quantised, rows go through an orthonormal Walsh-Hadamard transform, which spreads
// the few large channels that keys are known for over the row (QuaRot, Ashkboos et al. 2024). As it
// is orthogonal, a transformed query has the same product with a transformed key. It is its own
// inverse, so the same function transforms sums of transformed values back.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// Elements of the first half of a row.
std::size_t first_half(std::size_t size);

// Rows of at most this many elements are short: one scale, and fine_bits(size) more bits for each
// element.
inline constexpr std::size_t short_row_max = 16;
std::size_t fine_bits(std::size_t size);

inline constexpr std::size_t kv_page_positions = 32;

// Where the elements of a row lie in a page, in bytes. The elements of a half begin at
// offsets[half]; groups of four are group_stride apart, elements within one element_stride.
struct RowPlace {
  std::size_t first_half;  // elements
  std::size_t offsets[2];
  std::size_t group_stride, element_stride;

  std::size_t at(std::size_t i) const {
    const std::size_t half = i < first_half ? 0 : 1, k = i - half * first_half;
    return offsets[half] + k / 4 * group_stride + k % 4 * element_stride;
  }
};
RowPlace key_place(std::size_t size, std::size_t position);
// Of a long key whose first scale is for `first_part` elements, a multiple of four.
RowPlace parted_key_place(std::size_t first_part, std::size_t position);
RowPlace value_place(std::size_t size, std::size_t position);
RowPlace contiguous_place(std::size_t size, std::size_t offset = 0);  // one element after the other

// Bytes of all keys, or all values, of a head in a page. Long keys are padded to a multiple of four
// elements.
std::size_t key_page_bytes(std::size_t size);
std::size_t value_page_bytes(std::size_t size);

// Decodes a row to `out`. `scales` are as KvRowKernels::quantise writes them.
void dequantise_row(const std::int8_t* page, const RowPlace& place, std::size_t size,
                    const std::uint16_t* scales, std::size_t scale_stride, float* out);

// How many elements are transformed together: the largest power of two that divides `size`, at most
// hadamard_block_max. It is 1 for odd sizes: such rows are not changed.
inline constexpr std::size_t hadamard_block_max = 256;
std::size_t hadamard_block(std::size_t size);

struct KvRowKernels {
  // x[0..size) times the orthonormal Hadamard matrix, block by block, in place.
  void (*hadamard)(float* x, std::size_t size);
  // Quantises x. Writes its elements to their places in a page, the scale of the first half to
  // scales[0], and that of the second half (or the fine bits) to scales[scale_stride].
  void (*quantise)(const float* x, std::size_t size, std::int8_t* page, const RowPlace& place,
                   std::uint16_t* scales, std::size_t scale_stride);
};

}  // namespace sluice::kernels
