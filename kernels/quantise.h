// Activations as 8-bit integers, for the integer dot products of kernels/matmul.h.
//
// Two forms, one for each kind of weight block:
//   grouped by 256 ("a256"): for Q4_K, Q5_K and Q6_K, whose sub-block scales are integers;
//   grouped by  32 ("a32"):  for Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0, whose scales are half floats.
// A group holds q[i] = round_to_nearest_even(x[i] * (127 / max|x|)) in -127..127 and the scale
// d = max|x| / 127. x[i] is then approximately d q[i]. A group without an element of at least
// 2^-120 counts as zeros (127 / max|x| would overflow): d = 0 and q = 0. A group that holds an
// infinity or a NaN has a d that is one too, so that products with it show that something is wrong.
//
// Weights are stored with an offset (a nibble 0..15 stands for -8..7), and some have a minimum per
// sub-block. Both need sums of the activations, which are made here, once, instead of in every row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// One column of `size` activations. All pointers are owned by the caller and 64-byte aligned.
struct ColumnA256 {  // size is a multiple of 256
  std::int8_t* q;    // [size]
  float* d;          // [size / 256]
  // Sums of 32 consecutive q. Within a group of 256 they stand in the order 0 2 1 3 4 6 5 7, so
  // that two neighbours form the 32-bit operand of a 16-bit dot product with the minima of Q4_K.
  std::int16_t* sums_of_32;           // [size / 32]
  std::int32_t* minus_32_sums_of_16;  // [size / 16]: -32 times the sum of 16, the offset of Q6_K
};

struct ColumnA32 {               // size is a multiple of 32
  std::int8_t* q;                // [size]
  float* d;                      // [size / 32]
  float* d_sums;                 // [size / 32]: d times the sum, for minima (Q4_1, Q5_1)
  std::int32_t* minus_8_sums;    // [size / 32]: -8 times the sum of q, the offset of Q4_0
  std::int32_t* minus_16_sums;   //              Q5_0
  std::int32_t* minus_128_sums;  //              Q8_0
};

struct QuantiseKernels {
  void (*a256)(const float* x, std::size_t size, const ColumnA256& out);
  void (*a32)(const float* x, std::size_t size, const ColumnA32& out);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_quantise_scalar(QuantiseKernels& table);
void fill_quantise_avx2(QuantiseKernels& table);
void fill_quantise_avx512(QuantiseKernels& table);

}  // namespace sluice::kernels
