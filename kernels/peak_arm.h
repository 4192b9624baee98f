// The loop that measures how many multiply-adds of bytes a second an instruction of aarch64 gives.
#pragma once

#include <arm_neon.h>
#include <cstdint>

namespace sluice::kernels {
namespace {

// `dot(sum, w, x)` is the instruction, of `macs` multiply-adds. Returns how many were done.
template <std::uint64_t macs, typename Dot>
std::uint64_t repeat_dot(std::uint64_t rounds, Dot dot) {
  constexpr int chains = 16;  // enough to hide the latency of the instruction
  int32x4_t sums[chains] = {};
  const int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(2);
  for (std::uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) {
      sums[i] = dot(sums[i], w, x);
      // A compiler that knew the sums to be equal would make one chain of all.
      __asm__ volatile("" : "+w"(sums[i]));
    }
  }
  return rounds * chains * macs;
}

}  // namespace
}  // namespace sluice::kernels
