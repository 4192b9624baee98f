// vpdpbusd on 512-bit registers: 64 multiply-adds an instruction.
#include <immintrin.h>

#include "kernels/peak.h"

namespace sluice::kernels {
namespace {

std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr int chains = 16;  // enough to hide the latency of the instruction
  __m512i sums[chains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(2);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+v"(w), "+v"(x));
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], w, x);
  }
  for (__m512i& sum : sums) __asm__ volatile("" : : "v"(sum));
  return rounds * chains * sizeof(__m512i);
}

}  // namespace

void fill_peak_avx512vnni(PeakKernels& table) {
  table.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
