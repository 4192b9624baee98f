// The matrix product for AVX2 with FMA and F16C.
//
// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits. Its results are summed
// in 16 bits for as long as they cannot overflow (8 groups of four weights for 4-bit weights, 4 for
// 5-bit, 2 for 6-bit, 1 for 7-bit) before vpmaddwd widens them. 8-bit weights stay signed: their
// absolute value is multiplied with the activation, which gets their sign, and each result is
// widened at once. What a sum is multiplied with as it is widened is the scale of its sub-block, if
// that is an integer, so scales cost nothing.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;
constexpr bool high_bits_in_place = false;  // 240 * 127 * 2 would overflow 16 bits
constexpr bool unsigned_bytes = false;      // and so would 255 * 127 * 2
#define SLUICE_MULTIPLIES_INTEGERS
#define SLUICE_SUMS_WORDS
#define SLUICE_HAS_GRID_PRODUCT

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

// Multiplies groups of four weights of a panel with columns. Calls use(first, c, words) for each
// run of groups, from `first` on, whose sums fit into words.
template <int columns, int groups, int largest_q, typename Panel, typename Use>
[[gnu::always_inline]] inline void for_each_run(const Panel& p, std::size_t group,
                                                const std::int8_t* const* q, const Use& use) {
  constexpr int run = groups_in_16_bits(largest_q, groups);
#pragma GCC unroll 8
  for (int first = 0; first < groups; first += run) {
    __m256i sum[columns][2];
#pragma GCC unroll 8
    for (int g = first; g < first + run; ++g) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i w = load_words(p.q[group + g]).half[h];
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const __m256i a = broadcast(q[c] + 4 * (group + g));
          const __m256i products = byte_products<largest_q>(w, a);
          sum[c][h] = g == first ? products : _mm256_add_epi16(sum[c][h], products);
        }
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) use(first, c, I32x16{{sum[c][0], sum[c][1]}});
  }
}

template <int panels, int columns, int groups, int largest_q, typename Panel, typename Start>
inline void multiply_groups(const Panel* p, std::size_t group, const std::int8_t* const* q,
                            const Start& start, I32x16 (&dot)[columns][panels]) {
  static_assert(panels == 1);
  const auto widen = [&](int first, int c, I32x16 words) __attribute__((always_inline)) {
    if (first == 0) dot[c][0] = start(c);
    dot[c][0] = add_pair_products(words, each_dword(0x00010001), dot[c][0]);
  };
  for_each_run<columns, groups, largest_q>(*p, group, q, widen);
}

template <typename Format, int panels, int columns>
[[gnu::always_inline]] inline void add_sub_block(const IntegerPanel* p, int s,
                                                 const BlockA256* const (&)[columns],
                                                 const std::int8_t* const (&q)[columns],
                                                 BlockSum<Format> (&block)[columns][panels]) {
  static_assert(panels == 1);
  constexpr int groups = Format::sub_block / 4;
  const auto add = [&](int, int c, I32x16 words) __attribute__((always_inline)) {
    block[c][0].add_scaled(words, load_words(p->scale[s]));
  };
  for_each_run<columns, groups, Format::largest_q>(*p, s * groups, q, add);
}

// Sums the products of weights and columns in words. Those of a run are used.
template <typename Format, int slots, int columns>
class WordSums {
 public:
  explicit WordSums(const std::int8_t* const (&q)[columns]) : q_(q) {}

  // The groups of a slot come in ascending order, the first a multiple of 4 or 8.
  template <typename Use>
  [[gnu::always_inline]] inline void add(int slot, std::size_t group, I32x16 q, const Use& use) {
    constexpr std::size_t run = groups_in_16_bits(Format::largest_q, Format::sub_block / 4);
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const __m256i a = broadcast(q_[c] + 4 * group);
      I32x16& sum = sum_[slot][c];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i products = byte_products<Format::largest_q>(q.half[h], a);
        sum.half[h] = group % run == 0 ? products : _mm256_add_epi16(sum.half[h], products);
      }
      if (group % run == run - 1) use(c, sum);
    }
  }

 private:
  const std::int8_t* const (&q_)[columns];
  I32x16 sum_[slots][columns];
};

template <typename Format, int slots, int columns>
class DotSink {
 public:
  explicit DotSink(const std::int8_t* const (&q)[columns]) : words_(q) {
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) dot_[slot][c] = each_dword(0);
    }
  }
  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
    words_.add(
        slot, group, q, [&](int c, I32x16 words) __attribute__((always_inline)) {
          dot_[slot][c] = add_pair_products(words, each_dword(0x00010001), dot_[slot][c]);
        });
  }
  I32x16 dot(int slot, int column) const {
    return dot_[slot][column];
  }

 private:
  WordSums<Format, slots, columns> words_;
  I32x16 dot_[slots][columns];
};

template <typename Format, int stage, int columns>
class StageSink {
 public:
  StageSink(const typename Format::Scales& scales, const std::int8_t* const (&q)[columns])
      : words_(q) {
#pragma GCC unroll 4
    for (int slot = 0; slot < Format::slots; ++slot) {
      scale_[slot] = block_scale<Format>(scales, Format::sub_block_of(stage, slot));
    }
  }
  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
    words_.add(
        slot, group, q, [&](int c, I32x16 words) __attribute__((always_inline)) {
          total_[c].add_scaled(words, scale_[slot]);
        });
  }
  [[gnu::always_inline]] inline void add_to(BlockSum<Format> (&block)[columns],
                                            const BlockA256* const (&)[columns]) const {
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) block[c].add(total_[c]);
  }

 private:
  WordSums<Format, Format::slots, columns> words_;
  I32x16 scale_[Format::slots];
  BlockSum<Format> total_[columns];
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_grids_avx2.h"
#include "kernels/matmul_panels_x86.h"
