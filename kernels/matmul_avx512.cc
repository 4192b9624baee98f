// The matrix product for AVX-512 with VNNI. One 512-bit register holds one 32-bit value for each of
// the 16 rows of a panel.
//
// Cost per panel and column of 256 Q4_K weights: 64 vpdpbusd, 8 conversions and 8 fma for the
// sub-blocks, 4 vpdpwssd for the minima, 5 more to finish. Unpacking the panel costs about 300
// instructions and is shared by all columns.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;
constexpr bool high_bits_in_place = true;  // vpdpbusd does not saturate
constexpr int float_sums = 4;              // in four parts each
constexpr bool unsigned_bytes = true;      // vpdpbusd needs unsigned weights

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_lanes_avx512.h"

namespace sluice::kernels {
namespace {

// dot[c][p] += the products of `groups` times four weights with the activations of each column.
template <int panels, int columns, int groups, typename Panel>
inline void dot_groups(const Panel* p, std::size_t group, const std::int8_t* const* q,
                       __m512i (&dot)[columns][panels]) {
#pragma GCC unroll 8
  for (int g = 0; g < groups; ++g) {
    __m512i w[panels];
#pragma GCC unroll 2
    for (int i = 0; i < panels; ++i) w[i] = _mm512_load_si512(p[i].q[group + g]);
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      const __m512i a = each_word_at(q[c] + 4 * (group + g));
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) dot[c][i] = _mm512_dpbusd_epi32(dot[c][i], w[i], a);
    }
  }
}

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format> {
  using Column = ColumnA256;
  static constexpr int tile_columns = 6;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    constexpr int groups = Format::sub_block / 4;
    const BlockA256* x[columns];
    const std::int8_t* q[columns];
    BlockSum<Format> block[columns][panels];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
    }
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      __m512i dot[columns][panels];
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        I32x16 start = each_dword(0);
        if constexpr (Format::has_offset) start = Format::offset_dot(*x[c], s);
#pragma GCC unroll 2
        for (int i = 0; i < panels; ++i) dot[c][i] = start;
      }
      dot_groups<panels, columns, groups>(p, s * groups, q, dot);
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        const __m512 scale = _mm512_load_ps(p[i].scale[s]);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          block[c][i].add_scaled(dot[c][i], scale);
        }
      }
      if (s % Format::exact_run != Format::exact_run - 1) continue;
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
        for (int i = 0; i < panels; ++i) block[c][i].end_run();
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < panels; ++i) {
      const BlockFinish<Format> finish(p[i]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        finish.add_to(sums + c * sums_stride + i * panel_rows, block[c][i].total(), *x[c]);
      }
    }
  }
};

template <typename Format>
struct SmallKernel : UnpacksSmall<Format> {
  using Column = ColumnA32;
  static constexpr int tile_columns = 6;

  static Column column(const Activations& x, std::size_t c) { return x.a32(c); }

  template <int panels, int columns>
  static void multiply(const SmallPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    const BlockA32* x[columns];
    const std::int8_t* q[columns];
    __m512 sum[columns][panels];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
      for (int i = 0; i < panels; ++i) {
        sum[c][i] = _mm512_load_ps(sums + c * sums_stride + i * panel_rows);
      }
    }
    constexpr int groups = Format::sub_block / 4;
    for (std::size_t at = 0; at < weights / Format::sub_block; ++at) {
      const std::size_t s = at / scales_of_32<Format>;
      __m512i dot[columns][panels];
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (Format::has_offset) {
          start = _mm512_set1_epi32(offset_dot<Format>(*x[c], at));
        }
#pragma GCC unroll 2
        for (int i = 0; i < panels; ++i) dot[c][i] = start;
      }
      dot_groups<panels, columns, groups>(p, groups * at, q, dot);
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        const __m512 d = _mm512_load_ps(p[i].d[at]);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x[c]->d[s]));
          sum[c][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[c][i]), scale, sum[c][i]);
          if constexpr (Format::has_min) {
            sum[c][i] = _mm512_fmadd_ps(_mm512_load_ps(p[i].m[s]), _mm512_set1_ps(x[c]->d_sums[s]),
                                        sum[c][i]);
          }
        }
      }
    }
    for (int c = 0; c < columns; ++c) {
      for (int i = 0; i < panels; ++i) {
        _mm512_store_ps(sums + c * sums_stride + i * panel_rows, sum[c][i]);
      }
    }
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_part.h"
