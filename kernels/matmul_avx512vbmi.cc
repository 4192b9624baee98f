// The matrix product for AVX-512 with VNNI and VBMI: packed weights that index a grid or have
// digits in base 3, times a few columns. One instruction of VBMI finds 64 bytes by their numbers
// among 128. All else is the AVX-512 tier's.
//
// An entry of a grid is looked up as two bytes, the numbers of its weights. A byte with such a
// number and a sign is then the index of the weight itself. A lane has the weights of one position
// in four quads that follow each other; the activations are brought into the same order, once for a
// block and a column.
//
// Cost per panel of 256 IQ3_S weights and a column: 128 vpermi2b and 96 blends for the entries, 64
// each of vpternlogd, vpermb and vpdpbusd.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;
constexpr bool high_bits_in_place = true;
constexpr int float_sums = 4;
constexpr bool unsigned_bytes = true;

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_lanes_avx512.h"

namespace sluice::kernels {
namespace {

// What weights that index a grid are made of. A quad is four weights that follow each other: half
// an entry or all of it. The numbers of its weights (the codes) lie in one byte for two bits each,
// or in two bytes for three. With the sign of a weight, its code is six bits of a byte: the index
// of the byte of the weight.
//
// The signs of a quad are the low bits of another byte, that of position p is bit p. It is put over
// that bit of the codes, so the code of a position leaves it free:
//   two bits each    position 0: bits 1 and 2, 1: 3 and 4, 2: 0 and 5,
//                    3: 6 and 7, moved down by 2
//   three bits each  first byte, position 0: bits 1, 2 and 3, 1: 0, 4 and 5;
//                    second byte, position 2: bits 0, 1 and 3, 3: 2, 4 and 5
template <typename Format>
struct GridBytes {
  static constexpr int entries = Format::grid_entries, weights = Format::entry_weights;
  static constexpr bool is_quad = weights == 4;

  GridBytes() {
    for (int e = 0; e < entries; ++e) {
      for (int i = 0; i < weights; ++i) {
        const int number =
            is_quad ? number_of_4(Format::grid[e], i) : number_of_8(Format::grid[e], i);
        // The codes of an entry of eight are those of two quads, of an entry of four in two parts.
        codes[is_quad ? i / 2 : i / 4][e] |= in_place(i % 4, number);
      }
    }
    for (int p = 0; p < 4; ++p) {
      for (int index = 0; index < 64; ++index) {
        const int code = is_quad || p < 3 ? index : index << 2;
        for (int number = 0; number < (is_quad ? 8 : 4); ++number) {
          if ((code & in_place(p, -1)) != in_place(p, number)) continue;
          byte[p][index] = static_cast<std::uint8_t>(Format::grid_byte(number, index >> p & 1));
        }
      }
    }
  }

  static const GridBytes& get() {
    static const GridBytes bytes;
    return bytes;
  }

  alignas(64) std::uint8_t codes[2][entries] = {};
  alignas(64) std::uint8_t byte[4][64] = {};  // of a weight at each position

 private:
  // The bits of a number where the codes have them.
  static std::uint8_t in_place(int position, int number) {
    static constexpr int bits_of_two[4][3] = {{1, 2, -1}, {3, 4, -1}, {0, 5, -1}, {6, 7, -1}};
    static constexpr int bits_of_three[4][3] = {{1, 2, 3}, {0, 4, 5}, {0, 1, 3}, {2, 4, 5}};
    const auto& bits = is_quad ? bits_of_three[position] : bits_of_two[position];
    int code = 0;
    for (int i = 0; i < 3; ++i) {
      if (bits[i] >= 0) code |= (number >> i & 1) << bits[i];
    }
    return static_cast<std::uint8_t>(code);
  }
};

// Byte i of the result comes from byte order[i]: in 16 weights, first those at position 0 of the
// four quads, then those at position 1, and so on.
struct ByPosition {
  constexpr ByPosition() {
    for (int i = 0; i < 64; ++i) {
      order[i] = static_cast<std::uint8_t>(i / 16 * 16 + i % 4 * 4 + i / 4 % 4);
    }
  }
  alignas(64) std::uint8_t order[64] = {};
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_few.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

template <typename Format, int panels, int columns>
struct FewGridColumns {
  static constexpr std::size_t weights_per_block = k_block;
  using Scales = typename Format::Scales;

  static void run(PanelStreams<Format, panels>& streams, const ColumnA256* a,
                  Sums<panels, columns>& sums) {
    const GridBytes<Format>& grid = GridBytes<Format>::get();
    for (std::size_t i = 0; i < streams.blocks; ++i) {
      streams.go_to_block(i);
      const BlockA256* x[columns];
      Ordered ordered[columns];
      for (int c = 0; c < columns; ++c) {
        x[c] = &block_at(a[c], i);
        ordered[c].set(*x[c]);
      }
      for (int p = 0; p < panels; ++p) {
        // Words have to come from memory, for each panel anew: moving them through other registers
        // is slow.
        asm volatile("" : : "r"(ordered) : "memory");
        multiply(grid, streams.rows[p], x, ordered, sums.of[p]);
      }
    }
  }

 private:
  static constexpr int groups = static_cast<int>(k_block) / 32;
  static constexpr int sub_blocks = static_cast<int>(k_block) / Format::sub_block;

  // A block of activations by position, and what the offset takes off the products of a sub-block.
  struct Ordered {
    void set(const BlockA256& x) {
      static constexpr ByPosition by_position;
      const __m512i order = _mm512_load_si512(by_position.order);
      for (std::size_t at = 0; at < k_block; at += 64) {
        const __m512i bytes = _mm512_loadu_si512(x.q + at);
        _mm512_store_si512(q + at, _mm512_permutexvar_epi8(order, bytes));
      }
      for (int s = 0; s < sub_blocks; ++s) offsets[s] = Format::offset_sum(x, s);
    }

    alignas(64) std::int8_t q[k_block];
    std::int32_t offsets[sub_blocks];
  };

  [[gnu::always_inline]] static inline void multiply(const GridBytes<Format>& grid,
                                                     const PackedRows& rows,
                                                     const BlockA256* const (&x)[columns],
                                                     const Ordered (&a)[columns],
                                                     F32x16 (&sums)[columns]) {
    const Scales scales = Scales::template read<Format>(rows);
    BlockSum<Format> block[columns];
#pragma GCC unroll 8
    for (int s = 0; s < groups; ++s) {
      const GridGroup<Format::entry_weights> group = Format::grid_group(rows, scales, s);
      if constexpr (Format::sub_block == 16) {
        I32x16 dot[2][columns];
        start(a, 2 * s, dot[0]);
        add_half<0>(grid, group, s, a, dot[0]);
        add_scaled(scales, 2 * s, dot[0], block);
        start(a, 2 * s + 1, dot[1]);
        add_half<1>(grid, group, s, a, dot[1]);
        add_scaled(scales, 2 * s + 1, dot[1], block);
      } else {
        I32x16 dot[columns];
        start(a, s, dot);
        add_half<0>(grid, group, s, a, dot);
        add_half<1>(grid, group, s, a, dot);
        add_scaled(scales, s, dot, block);
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      finish_block<Format>(scales, *x[c], block[c].total(scales, *x[c]), sums[c]);
    }
  }

  [[gnu::always_inline]] static inline void start(const Ordered (&a)[columns], int s,
                                                  I32x16 (&dot)[columns]) {
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) dot[c] = each_word_at(a[c].offsets + s);
  }

  // Adds the products of sub-block s.
  [[gnu::always_inline]] static inline void add_scaled(const Scales& scales, int s,
                                                       const I32x16 (&dot)[columns],
                                                       BlockSum<Format> (&block)[columns]) {
    const F32x16 scale = block_scale<Format>(scales, s);
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      block[c].add_scaled(dot[c], scale);
      if ((s + 1) % Format::exact_run == 0) block[c].end_run();
    }
  }

  // Multiplies 16 of the weights of a group: four quads in each lane.
  template <int half>
  [[gnu::always_inline]] static inline void add_half(const GridBytes<Format>& grid,
                                                     const GridGroup<Format::entry_weights>& group,
                                                     int s, const Ordered (&a)[columns],
                                                     I32x16 (&dot)[columns]) {
    I32x16 first, last;  // the codes of positions 0 and 1, and of 2 and 3
    if constexpr (Format::entry_weights == 4) {
      first = codes<Format::grid_entries>(grid.codes[0], group.indices[half]);
      last = codes<Format::grid_entries>(grid.codes[1], group.indices[half]);
    } else {
      const I32x16 front = codes<Format::grid_entries>(grid.codes[0], group.indices[0]);
      const I32x16 back = codes<Format::grid_entries>(grid.codes[1], group.indices[0]);
      first = last = two_of_four<half>(front, back);
    }
    constexpr int at = 16 * half;  // the first four signs of two octets, and the last four, of each
    const I32x16 signs = bits_from<at, at + 4, at + 8, at + 12>(group.signs);
    add_position<0>(grid, first, signs, a, 2 * s + half, dot);
    add_position<1>(grid, first, signs, a, 2 * s + half, dot);
    add_position<2>(grid, last, signs, a, 2 * s + half, dot);
    if constexpr (Format::entry_weights == 8) last = right_16<2>(last);
    add_position<3>(grid, last, signs, a, 2 * s + half, dot);
  }

  // Bytes 0 and 1 or bytes 2 and 3 of every lane of x, with that of y after each.
  template <int half>
  [[gnu::always_inline]] static inline I32x16 two_of_four(I32x16 x, I32x16 y) {
    return bytes_of_both<2 * half, 4 + 2 * half, 2 * half + 1, 4 + 2 * half + 1>(x, y);
  }

  template <int position>
  [[gnu::always_inline]] static inline void add_position(const GridBytes<Format>& grid,
                                                         I32x16 codes, I32x16 signs,
                                                         const Ordered (&a)[columns], int sixteen,
                                                         I32x16 (&dot)[columns]) {
    constexpr int where_mask_is_set = 0xd8;  // the second operand, elsewhere the first
    const I32x16 index =
        _mm512_ternarylogic_epi32(codes, signs, each_byte(1 << position), where_mask_is_set);
    const I32x16 weights = _mm512_permutexvar_epi8(index, _mm512_load_si512(grid.byte[position]));
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      dot[c] =
          _mm512_dpbusd_epi32(dot[c], weights, each_word_at(a[c].q + 16 * sixteen + 4 * position));
    }
  }

  // The bytes of four entries in each lane.
  template <int count>
  [[gnu::always_inline]] static inline I32x16 codes(const std::uint8_t* table,
                                                    const FourIndices& indices) {
    if constexpr (count == 128) {
      return _mm512_permutex2var_epi8(_mm512_load_si512(table), indices.low,
                                      _mm512_load_si512(table + 64));
    } else {
      constexpr int half = count / 2;
      const I32x16 low = codes<half>(table, indices), high = codes<half>(table + half, indices);
      if constexpr (count == 256) return choose(_mm512_movepi8_mask(indices.low), high, low);
      return choose(indices.above[count == 512 ? 0 : count == 1024 ? 1 : 2], high, low);
    }
  }
};

ColumnA256 column_a256(const Activations& x, std::size_t c) {
  return x.a256(c);
}
ColumnA32 column_a32(const Activations& x, std::size_t c) {
  return x.a32(c);
}

void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch& scratch, const CorePolicy& policy) {
  bool is_done = false;
  if (w.is_packed && x.columns() <= few_columns) {
    visit_format(w.type, [&]<typename Format>(Format) {
      if constexpr (requires { Format::grid_entries; }) {
        const Prefetch& prefetch = policy.prefetch.for_columns(x.columns(), true);
        multiply_few<FewGridColumns, Format>(w, x, y, y_stride, prefetch, column_a256);
        is_done = true;
      } else if constexpr (requires { Format::has_base_3; }) {
        const Prefetch& prefetch = policy.prefetch.for_columns(x.columns());
        if constexpr (form_of<Format>() == ActivationForm::a256) {
          multiply_few<FewIntegerColumns, Format>(w, x, y, y_stride, prefetch, column_a256);
        } else {
          multiply_few<FewSmallColumns, Format>(w, x, y, y_stride, prefetch, column_a32);
        }
        is_done = true;
      }
    });
  }
  if (is_done) return;
  MatmulKernels avx512;
  fill_matmul_avx512(avx512);
  avx512.kernel(w, x, y, y_stride, scratch, policy);
}

}  // namespace

void fill_matmul_avx512vbmi(MatmulKernels& table) {
  table = {multiply, true};
}

}  // namespace sluice::kernels
