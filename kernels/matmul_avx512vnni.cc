// The matrix product for AVX-512 with VNNI. One 512-bit register holds one 32-bit value for each of
// the 16 rows of a panel.
//
// Cost per panel and column of 256 Q4_K weights: 64 vpdpbusd, 8 conversions and 8 fma for the
// sub-blocks, 4 vpdpwssd for the minima, 5 more to finish. Unpacking the panel costs about 300
// instructions and is shared by all columns.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "kernels/matmul_driver.h"

namespace sluice::kernels {
namespace {

constexpr bool high_nibbles_in_place = true;  // vpdpbusd does not saturate
constexpr bool unsigned_q8 = true;            // and wants unsigned weights

using I32x16 = __m512i;
using F32x16 = __m512;

struct RowDwords {
  I32x16 dword[4];
};

inline I32x16 load_four_rows(const std::byte* p, std::size_t row_bytes) {
  const auto load = [](const std::byte* q) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
  };
  I32x16 rows = _mm512_castsi128_si512(load(p));
  rows = _mm512_inserti32x4(rows, load(p + 4 * row_bytes), 1);
  rows = _mm512_inserti32x4(rows, load(p + 8 * row_bytes), 2);
  return _mm512_inserti32x4(rows, load(p + 12 * row_bytes), 3);
}

inline RowDwords load_dwords(PanelRows& rows, std::size_t offset) {
  const std::byte* p = rows.first + offset;
  const std::size_t row_bytes = rows.row_bytes;
  read_ahead(rows, 16 * panel_rows);
  const I32x16 r0 = load_four_rows(p, row_bytes);
  const I32x16 r1 = load_four_rows(p + row_bytes, row_bytes);
  const I32x16 r2 = load_four_rows(p + 2 * row_bytes, row_bytes);
  const I32x16 r3 = load_four_rows(p + 3 * row_bytes, row_bytes);
  const I32x16 low01 = _mm512_unpacklo_epi32(r0, r1), low23 = _mm512_unpacklo_epi32(r2, r3);
  const I32x16 high01 = _mm512_unpackhi_epi32(r0, r1), high23 = _mm512_unpackhi_epi32(r2, r3);
  return {{_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
           _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)}};
}

inline I32x16 bits_and(I32x16 a, I32x16 b) {
  return _mm512_and_si512(a, b);
}
inline I32x16 bits_or(I32x16 a, I32x16 b) {
  return _mm512_or_si512(a, b);
}
inline I32x16 bits_xor(I32x16 a, I32x16 b) {
  return _mm512_xor_si512(a, b);
}
template <int n>
inline I32x16 left_16(I32x16 x) {
  return _mm512_slli_epi16(x, n);
}
template <int n>
inline I32x16 right_16(I32x16 x) {
  return _mm512_srli_epi16(x, n);
}
inline I32x16 left_32(I32x16 x, int n) {
  return _mm512_slli_epi32(x, static_cast<unsigned>(n));
}
inline I32x16 right_32(I32x16 x, int n) {
  return _mm512_srli_epi32(x, static_cast<unsigned>(n));
}
inline I32x16 right_signed_32(I32x16 x, int n) {
  return _mm512_srai_epi32(x, static_cast<unsigned>(n));
}
inline I32x16 each_byte(int v) {
  return _mm512_set1_epi8(static_cast<char>(v));
}
inline I32x16 each_dword(int v) {
  return _mm512_set1_epi32(v);
}
inline F32x16 each(float v) {
  return _mm512_set1_ps(v);
}
inline F32x16 multiply(F32x16 a, F32x16 b) {
  return _mm512_mul_ps(a, b);
}
inline F32x16 to_float(I32x16 x) {
  return _mm512_cvtepi32_ps(x);
}
inline F32x16 low_halves(I32x16 x) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}
inline void store(void* p, I32x16 x) {
  _mm512_storeu_si512(p, x);
}
inline void store(void* p, F32x16 x) {
  _mm512_storeu_ps(p, x);
}

inline __m256i load_16_bit(const std::byte* p, std::size_t count) {
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), p);
}
inline F32x16 load_halves(const std::byte* p, std::size_t count) {
  return _mm512_cvtph_ps(load_16_bit(p, count));
}
inline F32x16 load_bfloats(const std::byte* p, std::size_t count) {
  return _mm512_castsi512_ps(left_32(_mm512_cvtepu16_epi32(load_16_bit(p, count)), 16));
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t sums_stride = 2 * panel_rows;

inline __m512i broadcast(const std::int8_t* q) {
  std::int32_t four;
  std::memcpy(&four, q, sizeof four);
  return _mm512_set1_epi32(four);
}

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
      const __m512i a = broadcast(q[c] + 4 * (group + g));
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) dot[c][i] = _mm512_dpbusd_epi32(dot[c][i], w[i], a);
    }
  }
}

template <typename Format>
struct IntegerKernel : Format {
  using Panel = IntegerPanel;
  using Column = ColumnA256;
  static constexpr int tile_columns = 6;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    constexpr int groups = Format::sub_block / 4;
    const std::int8_t* q[columns];
    __m512 block[columns][panels];
    for (int c = 0; c < columns; ++c) {
      q[c] = a[c].q + k;
      for (int i = 0; i < panels; ++i) block[c][i] = _mm512_setzero_ps();
    }
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      __m512i dot[columns][panels];
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
        for (int i = 0; i < panels; ++i) {
          dot[c][i] = Format::has_offset ? _mm512_set1_epi32(a[c].minus_32_sums_of_16[k / 16 + s])
                                         : _mm512_setzero_si512();
        }
      }
      dot_groups<panels, columns, groups>(p, s * groups, q, dot);
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        const __m512 scale = _mm512_load_ps(p[i].scale[s]);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          block[c][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[c][i]), scale, block[c][i]);
        }
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        float* sum_at = sums + c * sums_stride + i * panel_rows;
        finish(p[i], a[c], k, block[c][i], sum_at);
      }
    }
  }

 private:
  // Scales the sum of a block, adds it to the sum of the row, and takes off the minima.
  static void finish(const IntegerPanel& p, const ColumnA256& a, std::size_t k, __m512 block,
                     float* sum_at) {
    const __m512 d_x = _mm512_set1_ps(a.d[k / k_block]);
    __m512 sum = _mm512_load_ps(sum_at);
    sum = _mm512_fmadd_ps(block, _mm512_mul_ps(_mm512_load_ps(p.d), d_x), sum);
    if constexpr (Format::has_min) {
      __m512i dot = _mm512_setzero_si512();
      for (int j = 0; j < 4; ++j) {
        std::int32_t pair;
        std::memcpy(&pair, a.sums_of_32 + k / 32 + 2 * j, sizeof pair);
        dot = _mm512_dpwssd_epi32(dot, _mm512_load_si512(p.min[j]), _mm512_set1_epi32(pair));
      }
      const __m512 scale = _mm512_mul_ps(_mm512_load_ps(p.dmin), d_x);
      sum = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(dot), scale, sum);
    }
    _mm512_store_ps(sum_at, sum);
  }
};

template <typename Format>
struct SmallKernel {
  using Panel = SmallPanel;
  using Column = ColumnA32;
  static constexpr int tile_columns = 6;

  static Column column(const Activations& x, std::size_t c) { return x.a32(c); }

  static void unpack(PanelRows& rows, std::size_t k, std::size_t weights, SmallPanel& panel) {
    for (std::size_t s = 0; s < weights / 32; ++s) {
      Format::unpack_block(rows, (k / 32 + s) * Format::block_bytes, s, panel);
    }
  }

  template <int panels, int columns>
  static void multiply(const SmallPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    const std::int8_t* q[columns];
    __m512 sum[columns][panels];
    for (int c = 0; c < columns; ++c) {
      q[c] = a[c].q + k;
      for (int i = 0; i < panels; ++i) {
        sum[c][i] = _mm512_load_ps(sums + c * sums_stride + i * panel_rows);
      }
    }
    for (std::size_t s = 0; s < weights / 32; ++s) {
      const std::size_t at = k / 32 + s;
      __m512i dot[columns][panels];
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (Format::has_offset) start = _mm512_set1_epi32(Format::offsets(a[c])[at]);
#pragma GCC unroll 2
        for (int i = 0; i < panels; ++i) dot[c][i] = start;
      }
      dot_groups<panels, columns, 8>(p, 8 * s, q, dot);
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        const __m512 d = _mm512_load_ps(p[i].d[s]);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(a[c].d[at]));
          sum[c][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[c][i]), scale, sum[c][i]);
          if constexpr (Format::has_min) {
            sum[c][i] = _mm512_fmadd_ps(_mm512_load_ps(p[i].m[s]), _mm512_set1_ps(a[c].d_sums[at]),
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

template <typename Format>
struct FloatKernel : Format {
  using Panel = FloatPanel;
  using Column = const float*;
  static constexpr int tile_columns = 4;

  static Column column(const Activations& x, std::size_t c) { return x.f32(c); }

  template <int panels, int columns>
  static void multiply(const FloatPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    for (int i = 0; i < panels; ++i) {
      __m512 part[columns][4];
      const float* v[columns];
      for (int c = 0; c < columns; ++c) {
        v[c] = a[c] + k;
        for (int j = 0; j < 4; ++j) part[c][j] = _mm512_setzero_ps();
      }
      std::size_t n = 0;
      for (; n + 4 <= weights; n += 4) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const __m512 w = _mm512_load_ps(p[i].w[n + j]);
#pragma GCC unroll 8
          for (int c = 0; c < columns; ++c) {
            part[c][j] = _mm512_fmadd_ps(w, _mm512_set1_ps(v[c][n + j]), part[c][j]);
          }
        }
      }
      for (std::size_t j = 0; n + j < weights; ++j) {
        const __m512 w = _mm512_load_ps(p[i].w[n + j]);
        for (int c = 0; c < columns; ++c) {
          part[c][j] = _mm512_fmadd_ps(w, _mm512_set1_ps(v[c][n + j]), part[c][j]);
        }
      }
      for (int c = 0; c < columns; ++c) {
        float* sum_at = sums + c * sums_stride + i * panel_rows;
        const __m512 total = _mm512_add_ps(_mm512_add_ps(part[c][0], part[c][1]),
                                           _mm512_add_ps(part[c][2], part[c][3]));
        _mm512_store_ps(sum_at, _mm512_add_ps(_mm512_load_ps(sum_at), total));
      }
    }
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_dispatch.h"

namespace sluice::kernels {

void fill_matmul_avx512vnni(MatmulKernels& table) {
  table.multiply = multiply_in_tier;
}

}  // namespace sluice::kernels
