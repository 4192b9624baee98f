// Products of a few columns with the dot product of bytes of Armv8.2, for the tiers dotprod and
// i8mm.
#pragma once

#include "kernels/matmul_lanes_neon.h"

namespace sluice::kernels {
namespace {

// sum + the products of four weights in each lane with the four bytes of a with number `lane`.
template <int lane>
[[gnu::always_inline]] inline uint32x4_t add_dot(uint32x4_t sum, uint32x4_t w, int8x16_t a) {
  return vreinterpretq_u32_s32(
      vdotq_laneq_s32(vreinterpretq_s32_u32(sum), signed_bytes_of(w), a, lane));
}

// Four groups share a load of activations. The number of the group is a constant once the loop
// around the call is unrolled, and the choice of the lane is none.
[[gnu::always_inline]] inline I32x16 add_byte_products(I32x16 sum, const I32x16& w,
                                                       const std::int8_t* q, std::size_t group) {
  const int8x16_t a = vld1q_s8(q + 4 * (group - group % 4));
#pragma GCC unroll 4
  for (int i = 0; i < registers; ++i) {
    switch (group % 4) {
      case 0:
        sum.v[i] = add_dot<0>(sum.v[i], w.v[i], a);
        break;
      case 1:
        sum.v[i] = add_dot<1>(sum.v[i], w.v[i], a);
        break;
      case 2:
        sum.v[i] = add_dot<2>(sum.v[i], w.v[i], a);
        break;
      default:
        sum.v[i] = add_dot<3>(sum.v[i], w.v[i], a);
    }
  }
  return sum;
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_dot_sink.h"
