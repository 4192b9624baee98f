// Rows of cached keys and values as 8-bit integers, and the Hadamard transform that prepares them.
//
// A row of `size` numbers is kept as size int8 and two scales, IEEE halves, one for each half of
// the row: x[i] is approximately scale * q[i]. The first half are the first 16 * ceil(size / 32)
// elements, so that the border lies between two vectors of 16. A scale is max|x| / 127 rounded up
// to a half float: no element clips, and rows are quantised with the scale as it is kept. A half of
// zeros has the scale 1. An infinity or a NaN, or more than 127 times the largest half, makes a
// scale that is one too, so that products with the row show that something is wrong.
//
// A short row, of at most 16 elements, has one scale. In the place of the second it has n more bits
// for each element, n = min(16 / size, 8), from the lowest bits on: x[i] is approximately
// scale * (q[i] + bits[i] / 2^n). The fewer elements, the less their errors cancel.
//
// Rows lie in pages of 32 positions, long ones in the order in which attention multiplies them
// (kernels/attention_int8_impl.h), four products to a lane: keys as
// [element / 4][position][element % 4], so that a lane is a position, values as
// [half][position / 4][element of the half][position % 4], so that a lane is an element. Short rows
// are [position][element].
//
// Before that, rows go through an orthonormal Walsh-Hadamard transform, which spreads the few large
// channels that keys are known for over the row (QuaRot, Ashkboos et al. 2024). It is orthogonal: a
// transformed query has the same product with a transformed key, and it is its own inverse, so that
// the same function brings sums of transformed values back.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// Elements of the first half of a row.
std::size_t first_half(std::size_t size);

// Rows of at most so many elements have one scale and fine bits, n for each element.
inline constexpr std::size_t short_row_max = 16;
std::size_t fine_bits(std::size_t size);

inline constexpr std::size_t kv_page_positions = 32;

// Where in a page the elements of a row lie: element i of a half, whose own begin at offsets[half],
// in groups of four.
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
RowPlace value_place(std::size_t size, std::size_t position);
RowPlace contiguous_place(std::size_t size, std::size_t offset = 0);  // one element after the other

// Bytes of the rows of a page. Long keys are padded to a multiple of four elements.
std::size_t key_page_bytes(std::size_t size);
std::size_t value_page_bytes(std::size_t size);

// The numbers that a row stands for. `scales` as quantise() makes them.
void dequantise_row(const std::int8_t* page, const RowPlace& place, std::size_t size,
                    const std::uint16_t* scales, std::size_t scale_stride, float* out);

// Elements that are transformed together: the largest power of two that divides `size`, at most
// hadamard_block_max. 1 for an odd size, which is left as it is.
inline constexpr std::size_t hadamard_block_max = 256;
std::size_t hadamard_block(std::size_t size);

struct KvRowKernels {
  // x[0..size) times the orthonormal Hadamard matrix, block by block, in place.
  void (*hadamard)(float* x, std::size_t size);
  // The elements of x, to their places in a page, and its scales: of the first half at scales[0],
  // of the second (or the fine bits) at scales[scale_stride].
  void (*quantise)(const float* x, std::size_t size, std::int8_t* page, const RowPlace& place,
                   std::uint16_t* scales, std::size_t scale_stride);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_kv_rows_scalar(KvRowKernels& table);
void fill_kv_rows_avx2(KvRowKernels& table);
void fill_kv_rows_avx512(KvRowKernels& table);

}  // namespace sluice::kernels
