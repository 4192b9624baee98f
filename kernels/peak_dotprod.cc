// sdot: 16 multiply-adds an instruction.
#include <arm_neon.h>

#include "kernels/arm_tiers.h"

namespace sluice::kernels {
namespace {

std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr int chains = 16;  // enough to hide the latency of the instruction
  constexpr std::uint64_t macs = 16;
  int32x4_t sums[chains];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(2);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+w"(w), "+w"(x));
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = vdotq_s32(sums[i], w, x);
  }
  for (int32x4_t& sum : sums) __asm__ volatile("" : : "w"(sum));
  return rounds * chains * macs;
}

}  // namespace

void fill_peak_dotprod(PeakKernels& table) {
  table.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
