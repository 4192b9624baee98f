// What an exact int8 dot product costs on AVX2: vpmaddubsw adds two products in 16 bits, vpmaddwd
// adds two of these sums in 32 bits, and one addition follows.
#include <immintrin.h>

// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx2.h"
#include "kernels/operations_impl.h"
// clang-format on

namespace sluice::kernels {
namespace {

std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr int chains = 8;  // enough to hide the latency of the instructions
  __m256i sums[chains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < chains; ++i) {
      __asm__ volatile("" : "+x"(w));  // keeps the compiler from reusing a product
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
    }
  }
  for (__m256i& sum : sums) __asm__ volatile("" : : "x"(sum));
  return rounds * chains * sizeof(__m256i);
}

}  // namespace

void fill_avx2(KernelTable& table) {
  fill_operations(table);
  fill_matmul_avx2(table.matmul);
  table.peak.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
