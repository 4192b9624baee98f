// What exact int8 dot products cost on AVX2 at least, with weights of four bits: vpmaddubsw adds
// two products in 16 bits, where eight results have room, vpmaddwd adds two of their sums in 32
// bits, and one addition follows.
#include <immintrin.h>

// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx2.h"
#include "kernels/operations_impl.h"
// clang-format on

namespace sluice::kernels {
namespace {

std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr int chains = 4, words_together = 8;
  __m256i sums[chains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i w = _mm256_set1_epi8(3);
  const __m256i x = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
  for (std::uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 4
    for (__m256i& sum : sums) {
      __m256i words = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int i = 0; i < words_together; ++i) {
        __asm__ volatile("" : "+x"(w));  // keeps the compiler from reusing a product
        words = _mm256_add_epi16(words, _mm256_maddubs_epi16(w, x));
      }
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, ones));
    }
  }
  for (__m256i& sum : sums) __asm__ volatile("" : : "x"(sum));
  return rounds * chains * words_together * sizeof(__m256i);
}

}  // namespace

void fill_avx2(KernelTable& table) {
  fill_operations(table);
  fill_matmul_avx2(table.matmul);
  table.peak.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
