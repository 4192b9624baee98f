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

template <typename Format, int slots, int columns>
class DotSink {
 public:
  explicit DotSink(const std::int8_t* const (&q)[columns]) : q_(q) {
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) dot_[slot][c] = each_dword(0);
    }
  }
  // Four groups share a load of activations. The number of the group is a constant once the loop
  // around the call is unrolled, and the choice of the lane is none.
  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const int8x16_t a = vld1q_s8(q_[c] + 4 * (group - group % 4));
      I32x16& sum = dot_[slot][c];
#pragma GCC unroll 4
      for (int i = 0; i < registers; ++i) {
        switch (group % 4) {
          case 0:
            sum.v[i] = add_dot<0>(sum.v[i], q.v[i], a);
            break;
          case 1:
            sum.v[i] = add_dot<1>(sum.v[i], q.v[i], a);
            break;
          case 2:
            sum.v[i] = add_dot<2>(sum.v[i], q.v[i], a);
            break;
          default:
            sum.v[i] = add_dot<3>(sum.v[i], q.v[i], a);
        }
      }
    }
  }
  I32x16 dot(int slot, int column) const {
    return dot_[slot][column];
  }

 private:
  const std::int8_t* const (&q_)[columns];
  I32x16 dot_[slots][columns];
};

}  // namespace
}  // namespace sluice::kernels
