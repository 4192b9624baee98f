// Activations as 8-bit integers, for the integer dot products of kernels/matmul.h.
//
// Two forms, one for each kind of weight block:
//   grouped by 256 ("a256"): for Q2_K to Q6_K and IQ4_XS, whose sub-block scales are integers;
//   grouped by  32 ("a32"):  for Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4, with a float
//   scale.
// A group holds q[i] = round_to_nearest_even(x[i] * (n / max|x|)) in -127..127 and a scale d, and
// x[i] is approximately d q[i]. n is the one of `steps_of_largest` that leaves the least squared
// error with the best d for it, max|x| / n * sum(q x n / max|x|) / sum(q q). A group without an
// element of at least 2^-120 counts as zeros (127 / max|x| would overflow): d = 0 and q = 0. A
// group that holds an infinity or a NaN has a d that is one too, so that products with it show that
// something is wrong.
//
// Weights are stored with an offset (a nibble 0..15 stands for -8..7), and some have a minimum per
// sub-block. Both need sums of the activations, which are made here, once, instead of in every row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// How many steps the largest element of a group may get. Each would do about as well as 127 for all
// groups; the best of four for each group leaves 13 % less squared error in groups of 32, and 4 %
// less in groups of 256 (normal distribution). 127 comes first, so that integers stay exact.
inline constexpr float steps_of_largest[] = {127, 126.6F, 126.2F, 127.4F};

// 256 activations with all that belongs to them.
struct alignas(64) BlockA256 {
  std::int8_t q[256];
  // Sums of 32 consecutive q, in the order 0 2 1 3 4 6 5 7, so that two neighbours form the 32-bit
  // operand of a 16-bit dot product with the minima of Q4_K; those of 16 alike, for Q2_K.
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
};

// One column of activations: block i, of activations 256 i and up, is blocks[i * stride]. Blocks
// are owned by the caller.
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

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_quantise_scalar(QuantiseKernels& table);
void fill_quantise_avx2(QuantiseKernels& table);
void fill_quantise_avx512(QuantiseKernels& table);

}  // namespace sluice::kernels
