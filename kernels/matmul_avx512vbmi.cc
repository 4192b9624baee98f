// The matrix product for AVX-512 with VNNI and VBMI: packed weights that index a grid, times a few
// columns. One instruction of VBMI finds 64 bytes by their numbers among 128. So the bytes of the
// weights are looked up themselves, and not an entry that is then taken apart: for each position in
// an entry there is a table of the bytes that all entries have there. All else is the AVX-512
// tier's.
//
// A lane then has the weights of one position in four entries that follow each other. The
// activations are brought into the same order, once for a block and a column.
//
// Cost per panel of 256 IQ3_XXS weights and a column: 128 vpermi2b, 64 each of blends, tests of
// signs, subtractions and vpdpbusd.
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

// The bytes of a grid: of[position][entry], with the offset of the format and without a sign.
template <typename Format>
struct GridBytes {
  static constexpr int positions = Format::grid_positions, entries = Format::grid_entries;

  GridBytes() {
    for (int p = 0; p < positions; ++p) {
      for (int e = 0; e < entries; ++e) {
        of[p][e] = static_cast<std::uint8_t>(Format::offset + Format::grid_value(e, p));
      }
    }
  }

  static const GridBytes& get() {
    static const GridBytes bytes;
    return bytes;
  }

  alignas(64) std::uint8_t of[positions][entries];
};

// Byte i of the result comes from byte order[i]: `positions` words of four bytes, each with one
// position of four entries, from four entries of `positions` bytes.
template <int positions>
struct ByPosition {
  constexpr ByPosition() {
    for (int i = 0; i < 64; ++i) {
      const int in_word = i % 4, word = i / 4;
      order[i] = static_cast<std::uint8_t>(word / positions * 4 * positions + in_word * positions +
                                           word % positions);
    }
  }
  alignas(64) std::uint8_t order[64] = {};
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_few.h"

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
      alignas(64) std::int8_t q[columns][k_block];
      for (int c = 0; c < columns; ++c) {
        x[c] = &block_at(a[c], i);
        order(x[c]->q, q[c]);
      }
      // The words have to come from memory: taking them out of the registers is slow.
      asm volatile("" : : "r"(q) : "memory");
      for (int p = 0; p < panels; ++p) multiply(grid, streams.rows[p], x, q, sums.of[p]);
    }
  }

 private:
  static constexpr int positions = Format::grid_positions;
  static constexpr int sub_blocks = static_cast<int>(k_block) / Format::sub_block;
  // Lanes of four entries in a sub-block, and how many of them share the loads of the tables, as
  // their sums fit into registers.
  static constexpr int lanes_of = Format::sub_block / (4 * positions);
  static constexpr int together = columns >= 4 ? lanes_of : 4 / columns;

  static void order(const std::int8_t* from, std::int8_t* to) {
    static constexpr ByPosition<positions> by_position;
    const __m512i order = _mm512_load_si512(by_position.order);
    for (std::size_t at = 0; at < k_block; at += 64) {
      const __m512i bytes = _mm512_loadu_si512(from + at);
      _mm512_store_si512(to + at, _mm512_permutexvar_epi8(order, bytes));
    }
  }

  [[gnu::always_inline]] static inline void multiply(const GridBytes<Format>& grid,
                                                     const PackedRows& rows,
                                                     const BlockA256* const (&x)[columns],
                                                     const std::int8_t (&q)[columns][k_block],
                                                     F32x16 (&sums)[columns]) {
    const Scales scales = Scales::template read<Format>(rows);
    BlockSum<Format> block[columns];
    for (int first = 0; first < sub_blocks; first += together / lanes_of) {
      FourInLanes four[together];
      I32x16 dot[together][columns];
#pragma GCC unroll 4
      for (int n = 0; n < together; ++n) {
        four[n] = Format::four_in_lanes(rows, scales, first + n / lanes_of, n % lanes_of);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) dot[n][c] = each_dword(0);
      }
      // The compiler would read all tables before the loop, and keep them on the stack.
      const GridBytes<Format>* tables = &grid;
      asm("" : "+r"(tables));
#pragma GCC unroll 8
      for (int p = 0; p < positions; ++p) {
#pragma GCC unroll 4
        for (int n = 0; n < together; ++n) {
          const std::size_t group = (first * lanes_of + n) * positions + p;
          const I32x16 weights = look_up(tables->of[p], four[n], Format::sign_bits << p);
#pragma GCC unroll 8
          for (int c = 0; c < columns; ++c) {
            dot[n][c] = _mm512_dpbusd_epi32(dot[n][c], weights, each_word_at(q[c] + 4 * group));
          }
        }
      }
#pragma GCC unroll 4
      for (int n = 0; n < together; n += lanes_of) {
        const int s = first + n / lanes_of;
        const F32x16 scale = float_scale<Format>(scales, s);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          I32x16 sum = add(dot[n][c], Format::offset_dot(*x[c], s));
          if constexpr (lanes_of == 2) sum = add(sum, dot[n + 1][c]);
          block[c].add_scaled(sum, scale);
          if ((s + 1) % Format::exact_run == 0) block[c].end_run();
        }
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      finish_block<Format>(scales, *x[c], block[c].total(), sums[c]);
    }
  }

  // The bytes of one position of four entries in each lane.
  [[gnu::always_inline]] static inline I32x16 look_up(
      const std::uint8_t (&bytes)[Format::grid_entries], const FourInLanes& four, int sign_bits) {
    const auto among_256 = [&](int first) __attribute__((always_inline)) {
      const auto among_128 = [&](int at) __attribute__((always_inline)) {
        return _mm512_permutex2var_epi8(_mm512_load_si512(bytes + at), four.numbers,
                                        _mm512_load_si512(bytes + at + 64));
      };
      return choose(four.is_upper, among_128(first + 128), among_128(first));
    };
    I32x16 found = among_256(0);
    if constexpr (Format::grid_entries == 512) found = choose(four.is_high, among_256(256), found);
    static_assert(Format::grid_entries == 256 || Format::grid_entries == 512);
    // A weight -v has the byte offset - v: what its byte offset + v is short of twice the offset.
    return _mm512_mask_sub_epi8(found, has_bits(four.signs, sign_bits),
                                each_byte(2 * Format::offset), found);
  }
};

ColumnA256 column_a256(const Activations& x, std::size_t c) {
  return x.a256(c);
}
ColumnA32 column_a32(const Activations& x, std::size_t c) {
  return x.a32(c);
}

void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch& scratch, const PrefetchPolicy& policy) {
  bool is_done = false;
  if (w.is_packed && x.columns() <= few_columns) {
    visit_format(w.type, [&]<typename Format>(Format) {
      if constexpr (requires { Format::grid_entries; }) {
        // Looking up takes as long as multiplying many columns, and memory is read as slowly.
        multiply_few<FewGridColumns, Format>(w, x, y, y_stride, policy.for_columns(16),
                                             column_a256);
        is_done = true;
      } else if constexpr (requires { Format::has_base_3; }) {
        const Prefetch& prefetch = policy.for_columns(x.columns());
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
  fill_matmul_avx512vnni(avx512);
  avx512.kernel(w, x, y, y_stride, scratch, policy);
}

}  // namespace

void fill_matmul_avx512vbmi(MatmulKernels& table) {
  table = {multiply, true};
}

}  // namespace sluice::kernels
