// The matrix product for AVX2 with FMA and F16C.
//
// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits. Its results are summed
// in 16 bits for as long as they cannot overflow (8 groups of four weights for 4-bit weights, 4 for
// 5-bit, 2 for 6-bit, 1 for 7-bit) before vpmaddwd widens them. 8-bit weights stay signed: their
// absolute value is multiplied with the activation, which gets their sign, and each result is
// widened at once.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;
constexpr bool high_bits_in_place = false;  // 240 * 127 * 2 would overflow 16 bits
constexpr bool unsigned_bytes = false;      // and so would 255 * 127 * 2

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_lanes_avx2.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t few_columns = 4, few_sums = 4;
constexpr int panels_in_registers = 1, columns_at_once = 4;

// How many of `groups` groups of four weights can be summed in 16 bits.
constexpr int groups_in_16_bits(int largest_q, int groups) {
  const int most = largest_q <= 15 ? 8 : largest_q <= 31 ? 4 : largest_q <= 63 ? 2 : 1;
  return most < groups ? most : groups;
}

// Products of weights w with activations a. w are unsigned bytes; signed if they have eight bits.
template <int largest_q>
inline __m256i byte_products(__m256i w, __m256i a) {
  return largest_q > 127 ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
                         : _mm256_maddubs_epi16(w, a);
}

template <int panels, int columns, int groups, int largest_q, typename Panel, typename Start>
inline void multiply_groups(const Panel* p, std::size_t group, const std::int8_t* const* q,
                            const Start& start, I32x16 (&dot)[columns][panels]) {
  static_assert(panels == 1);
  constexpr int run = groups_in_16_bits(largest_q, groups);
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int first = 0; first < groups; first += run) {
    __m256i sum[columns][2];
#pragma GCC unroll 8
    for (int g = first; g < first + run; ++g) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i w = load_words(p->q[group + g]).half[h];
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const __m256i a = broadcast(q[c] + 4 * (group + g));
          const __m256i products = byte_products<largest_q>(w, a);
          sum[c][h] = g == first ? products : _mm256_add_epi16(sum[c][h], products);
        }
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      if (first == 0) dot[c][0] = start(c);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        __m256i& half = dot[c][0].half[h];
        half = _mm256_add_epi32(half, _mm256_madd_epi16(sum[c][h], ones));
      }
    }
  }
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
  // The groups of a slot come in ascending order, the first a multiple of 4 or 8.
  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
    constexpr std::size_t run = groups_in_16_bits(Format::largest_q, Format::sub_block / 4);
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const __m256i a = broadcast(q_[c] + 4 * group);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i products = byte_products<Format::largest_q>(q.half[h], a);
        __m256i& sum = sum_[slot][c].half[h];
        sum = group % run == 0 ? products : _mm256_add_epi16(sum, products);
        if (group % run == run - 1) {
          __m256i& dot = dot_[slot][c].half[h];
          dot = _mm256_add_epi32(dot, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
        }
      }
    }
  }
  I32x16 dot(int slot, int column) const {
    return dot_[slot][column];
  }

 private:
  const std::int8_t* const (&q_)[columns];
  I32x16 sum_[slots][columns];  // of 16-bit products
  I32x16 dot_[slots][columns];
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_x86.h"
