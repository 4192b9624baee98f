// Packed weights of IQ2 and IQ3 times a few columns, on AVX2. Included by matmul_avx2.cc before its
// products.
//
// Entries of a grid are loaded one by one (look_up_octets, look_up_quads), by numbers that have
// been stored. A load that meets its store under way takes longer, so the numbers of a whole block
// are stored before the first of them is read. An entry has magnitudes: it is multiplied with the
// activations or with their negatives, as the signs say, so that weights need no offset and more of
// their products fit into a word.
#pragma once

#include "kernels/matmul_few.h"

namespace sluice::kernels {
namespace {

template <typename Format, int panels, int columns>
struct FewGridColumns {
  static constexpr std::size_t weights_per_block = k_block;

  static void run(PanelStreams<Format, panels>& streams, const ColumnA256* a,
                  Sums<panels, columns>& sums) {
    for (std::size_t i = 0; i < streams.blocks; ++i) {
      streams.go_to_block(i);
      const BlockA256* x[columns];
      alignas(32) std::int8_t minus[columns][k_block];
      for (int c = 0; c < columns; ++c) {
        x[c] = &block_at(a[c], i);
        for (std::size_t k = 0; k < k_block; ++k) {
          minus[c][k] = static_cast<std::int8_t>(-x[c]->q[k]);
        }
      }
      for (int p = 0; p < panels; ++p) multiply(streams.rows[p], x, minus, sums.of[p]);
    }
  }

 private:
  using Scales = typename Format::Scales;
  using Group = GridGroup<Format::entry_weights>;
  static constexpr int groups = static_cast<int>(k_block) / 32;  // of GridGroup
  static constexpr int bits = bits_above_8(Format::grid_entries);
  using Numbers = typename FourNumbers<bits>::Row;
  static constexpr int fours = 8 / Format::entry_weights;  // of entries in 32 weights
  static constexpr int largest = Format::largest_q - Format::offset;
  // How many groups of four weights are summed in a word.
  static constexpr int in_word = groups_in_16_bits(largest, Format::sub_block / 4);
  static_assert(in_word * 2 * largest * 127 < 1 << 15);

  // The numbers of the entries of a block, unless they are bytes of it, and the scales of its
  // sub-blocks.
  struct Prepared {
    FourNumbers<bits> numbers[bits == 0 ? 1 : groups][fours];
    alignas(32) std::byte scale[k_block / Format::sub_block][2][32];
  };

  [[gnu::always_inline]] static inline void prepare(const PackedRows& rows, const Scales& scales,
                                                    Prepared& out) {
    if constexpr (bits > 0) {
#pragma GCC unroll 8
      for (int s = 0; s < groups; ++s) {
        const Group group = Format::grid_group(rows, scales, s);
#pragma GCC unroll 2
        for (int f = 0; f < fours; ++f) out.numbers[s][f].store(group.indices[f]);
      }
    }
#pragma GCC unroll 16
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      store(out.scale[s], block_scale<Format>(scales, s));
    }
  }

  [[gnu::always_inline]] static inline void multiply(const PackedRows& rows,
                                                     const BlockA256* const (&x)[columns],
                                                     const std::int8_t (&minus)[columns][k_block],
                                                     F32x16 (&sums)[columns]) {
    const Scales scales = Scales::template read<Format>(rows);
    Prepared prepared;
    prepare(rows, scales, prepared);
    const Prepared* p = &prepared;
    __asm__("" : "+r"(p) : : "memory");   // numbers are to be read from memory, as in read_back()
    __m256i low[columns], high[columns];  // sums of rows 0..7 and 8..15
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) low[c] = high[c] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int s = 0; s < groups; ++s) {
      const std::int8_t *plus[columns], *negative[columns];
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        plus[c] = x[c]->q + 32 * s;
        negative[c] = minus[c] + 32 * s;
      }
      const Numbers* numbers[fours];
#pragma GCC unroll 2
      for (int f = 0; f < fours; ++f) {
        if constexpr (bits == 0) {
          const int at = 8 * s + 4 * f;
          numbers[f] = reinterpret_cast<const Numbers*>(find_word<Format>(rows, at));
        } else {
          numbers[f] = p->numbers[s][f].of;
        }
      }
      const I32x16 signs = Format::grid_group(rows, scales, s).signs;
      add_group<0>(*p, s, numbers, signs.half[0], plus, negative, low);
      add_group<1>(*p, s, numbers, signs.half[1], plus, negative, high);
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      finish_block<Format>(scales, *x[c], to_float(I32x16{{low[c], high[c]}}), sums[c]);
    }
  }

  // Adds the products of 32 weights of eight rows.
  template <int half>
  [[gnu::always_inline]] static inline void add_group(const Prepared& p, int s,
                                                      const Numbers* const (&numbers)[fours],
                                                      __m256i signs,
                                                      const std::int8_t* const (&plus)[columns],
                                                      const std::int8_t* const (&minus)[columns],
                                                      __m256i (&total)[columns]) {
    __m256i words[columns];
    const auto add = [&](auto nth, __m256i magnitudes) __attribute__((always_inline)) {
      constexpr int four = decltype(nth)::value;
      const __m256i of_octet = shuffle_bytes<four / 2 * 0x01010101>(signs);
      const __m256i is_negative = has_bits(of_octet, four % 2 == 0 ? first_four : last_four);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        const __m256i a = _mm256_blendv_epi8(broadcast(plus[c] + 4 * four),
                                             broadcast(minus[c] + 4 * four), is_negative);
        const __m256i products = _mm256_maddubs_epi16(magnitudes, a);
        words[c] = four % in_word == 0 ? products : _mm256_add_epi16(words[c], products);
        if constexpr (four % in_word == in_word - 1) {
          constexpr int of_group = Format::sub_block == 16 ? four / 4 : 0;
          const __m256i scale = load_256(p.scale[32 / Format::sub_block * s + of_group][half]);
          total[c] = _mm256_add_epi32(total[c], _mm256_madd_epi16(words[c], scale));
        }
      }
    };
    add_octet<half, 0>(numbers, add);
    add_octet<half, 1>(numbers, add);
    add_octet<half, 2>(numbers, add);
    add_octet<half, 3>(numbers, add);
  }

  // Calls add(four, magnitudes) for both fours of octet `nth` of a group.
  template <int half, int nth, typename Add>
  [[gnu::always_inline]] static inline void add_octet(const Numbers* const (&numbers)[fours],
                                                      const Add& add) {
    const std::integral_constant<int, 2 * nth> first;
    const std::integral_constant<int, 2 * nth + 1> last;
    if constexpr (Format::entry_weights == 8) {
      const EightOctets found =
          look_up_octets_of_eight<nth>(Format::entries.of, numbers[0] + 8 * half);
      add(first, found.first);
      add(last, found.last);
    } else {
      const Numbers* four = numbers[nth / 2] + 8 * half;
      add(first, look_up_quads_of_eight<2 * (nth % 2)>(Format::entries.of, four));
      add(last, look_up_quads_of_eight<2 * (nth % 2) + 1>(Format::entries.of, four));
    }
  }

  static __m256i load_256(const std::byte* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
};

}  // namespace
}  // namespace sluice::kernels
