// What an exact int8 dot product costs on Armv8.0: two multiplications to words, one addition of
// neighbours and one that widens.
#include <arm_neon.h>

// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/operations_impl.h"
// clang-format on

namespace sluice::kernels {
namespace {

std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr int chains = 8;  // enough to hide the latency of the instructions
  int32x4_t sums[chains];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  int8x16_t w = vdupq_n_s8(3);
  const int8x16_t x = vdupq_n_s8(2);
  for (std::uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < chains; ++i) {
      __asm__ volatile("" : "+w"(w));  // keeps the compiler from reusing a product
      const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
      sums[i] = vpadalq_s16(sums[i], vpaddq_s16(low, vmull_high_s8(w, x)));
    }
  }
  for (int32x4_t& sum : sums) __asm__ volatile("" : : "w"(sum));
  return rounds * chains * sizeof(int8x16_t);
}

}  // namespace

void fill_neon(KernelTable& table) {
  fill_operations(table);
  fill_matmul_neon(table.matmul);
  table.peak.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
