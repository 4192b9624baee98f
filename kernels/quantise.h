// Activations as 8-bit integers, for the integer dot products of kernels/matmul.h.
//
// Two forms, one for each kind of weight block:
//   grouped by 256 ("a256"): for Q2_K to Q6_K, IQ1_S to IQ3_S, IQ4_XS, TQ1_0 and TQ2_0, whose
//   sub-block scales are integers;
//   grouped by  32 ("a32"):  for Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4, Q1_0,
//   Q2_0, PQ2_0 and PTQ1_0, with a float scale.
// A group has q[i] = round_to_nearest_even(x[i] * (n / max|x|)) in -127..127 and a scale d; x[i] is
// approximately d q[i]. For a given n the best scale is
// d = max|x| / n * sum(q x n / max|x|) / sum(q q). n is the element of `steps_of_largest` that,
// with its best d, has the least squared error. If all elements are below 2^-120, where
// 127 / max|x| would overflow, the group counts as zeros: d = 0 and q = 0. If an element is an
// infinity or a NaN, d is one too, so that products with the group show that something is wrong.
//
// Weights are stored with an offset (a nibble 0..15 stands for -8..7), and some have a minimum per
// sub-block. Both need sums of the activations, which are computed here once instead of once for
// every row of weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// The values of n that are tried. Used alone, each would do about as well as 127. The best of the
// four for each group has 13 % less squared error in groups of 32, and 4 % less in groups of 256
// (normal distribution). 127 comes first, so that integers stay exact.
inline constexpr float steps_of_largest[] = {127, 126.6F, 126.2F, 127.4F};

// 256 activations in one group, with their scale and sums.
struct alignas(64) BlockA256 {
  std::int8_t q[256];
  // Sums of 32 consecutive q, in the order 0 2 1 3 4 6 5 7, so that two neighbours form the 32-bit
  // operand of a 16-bit dot product with the minima of Q4_K. The sums of 16 are ordered alike, for
  // Q2_K.
  std::int16_t sums_of_32[8];
  float d;
  std::int16_t sums_of_16[16];
  alignas(64) std::int32_t minus_32_sums_of_16[16];  // -32 times the sum of 16, for offsets (Q6_K)
};

// 256 activations as 8 groups.
struct alignas(64) BlockA32 {
  std::int8_t q[256];
  float d[8];
  float d_sums[8];                 // d times the sum, for minima (Q4_1, Q5_1)
  std::int32_t minus_8_sums[8];    // -8 times the sum of q, the offset of Q4_0
  std::int32_t minus_16_sums[8];   //                                     Q5_0, MXFP4
  std::int32_t minus_128_sums[8];  //                                     Q8_0, IQ4_NL
  // -16 times the sum of the first 16 of each group (NVFP4).
  std::int32_t minus_16_sums_of_first_16[8];
};

// One column of activations. blocks[i * stride] is block i: the activations from 256 i on. The
// caller owns the blocks.
template <typename Block>
struct ActivationColumn {
  Block* blocks;
  std::size_t stride;
};
using ColumnA256 = ActivationColumn<BlockA256>;  // its size is a multiple of 256,
using ColumnA32 = ActivationColumn<BlockA32>;    // or of 32: the last block may be used in part

struct QuantiseKernels {
  void (*a256)(const float* x, std::size_t size, const ColumnA256& out);
  void (*a32)(const float* x, std::size_t size, const ColumnA32& out);
};

}  // namespace sluice::kernels
