// The matrix product for AVX2 with FMA and F16C. Two 256-bit registers hold one 32-bit value for
// each of the 16 rows of a panel.
//
// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits. Its results are summed
// in 16 bits for as long as they cannot overflow (8 groups of four weights for 4-bit weights, 4 for
// 5-bit, 2 for 6-bit, 1 for 7-bit) before vpmaddwd widens them. 8-bit weights stay signed: their
// absolute value is multiplied with the activation, which gets their sign, and each result is
// widened at once.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_driver.h"

namespace sluice::kernels {
namespace {

constexpr bool high_bits_in_place = false;  // 240 * 127 * 2 would overflow 16 bits
constexpr int float_sums = 1;               // in four parts, of two registers each
constexpr bool unsigned_bytes = false;      // and so would 255 * 127 * 2

struct I32x16 {
  __m256i half[2];  // rows 0..7 and 8..15
};
struct F32x16 {
  __m256 half[2];
};
struct RowDwords {
  I32x16 dword[4];
};

inline __m256i load_two_rows(const std::byte* p, std::size_t row_bytes) {
  const auto load = [](const std::byte* q) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load(p)), load(p + 4 * row_bytes), 1);
}

inline RowDwords load_dwords(FileRows& rows, std::size_t offset) {
  const std::byte* p = rows.block + offset;
  const std::size_t row_bytes = rows.row_bytes;
  read_ahead(rows, 16 * panel_rows);
  RowDwords out;
  for (int h = 0; h < 2; ++h) {
    const std::byte* q = p + 8 * h * row_bytes;
    const __m256i r0 = load_two_rows(q, row_bytes), r1 = load_two_rows(q + row_bytes, row_bytes);
    const __m256i r2 = load_two_rows(q + 2 * row_bytes, row_bytes);
    const __m256i r3 = load_two_rows(q + 3 * row_bytes, row_bytes);
    const __m256i low01 = _mm256_unpacklo_epi32(r0, r1), low23 = _mm256_unpacklo_epi32(r2, r3);
    const __m256i high01 = _mm256_unpackhi_epi32(r0, r1), high23 = _mm256_unpackhi_epi32(r2, r3);
    out.dword[0].half[h] = _mm256_unpacklo_epi64(low01, low23);
    out.dword[1].half[h] = _mm256_unpackhi_epi64(low01, low23);
    out.dword[2].half[h] = _mm256_unpacklo_epi64(high01, high23);
    out.dword[3].half[h] = _mm256_unpackhi_epi64(high01, high23);
  }
  return out;
}

inline I32x16 load_words(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {{_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)}};
}

inline I32x16 load_bytes(const std::byte* p) {
  const auto widen = [](const std::byte* q) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q)));
  };
  return {{widen(p), widen(p + 8)}};
}

inline I32x16 byte_table(const std::uint8_t* p) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i twice = _mm256_broadcastsi128_si256(table);
  return {{twice, twice}};
}
inline I32x16 look_up(I32x16 table, I32x16 x) {
  return {{_mm256_shuffle_epi8(table.half[0], x.half[0]),
           _mm256_shuffle_epi8(table.half[1], x.half[1])}};
}

// Entries of 16 bits by their numbers in the halves of every lane. A gather reads 32 bits.
template <int entries>
inline I32x16 look_up_pairs(const std::uint16_t* table, I32x16 numbers) {
  I32x16 out;
  for (int h = 0; h < 2; ++h) {
    const auto gather = [&](__m256i at) {
      return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), at, 2);
    };
    const __m256i low = gather(_mm256_and_si256(numbers.half[h], _mm256_set1_epi32(0xffff)));
    const __m256i high = gather(_mm256_srli_epi32(numbers.half[h], 16));
    out.half[h] = _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
  }
  return out;
}

// Byte i of every lane becomes its byte number (pattern >> 8 i) & 3.
template <int pattern>
inline I32x16 shuffle_bytes(I32x16 x) {
  const __m256i control = _mm256_add_epi32(
      _mm256_set1_epi32(pattern), _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0,
                                                    0x04040404, 0x08080808, 0x0c0c0c0c));
  return {{_mm256_shuffle_epi8(x.half[0], control), _mm256_shuffle_epi8(x.half[1], control)}};
}

using ByteMask = I32x16;  // bytes of 0 or 255

inline ByteMask has_bits(I32x16 x, int pattern) {
  const __m256i bits = _mm256_set1_epi32(pattern);
  const auto compare = [&](__m256i a) {
    return _mm256_cmpeq_epi8(_mm256_and_si256(a, bits), bits);
  };
  return {{compare(x.half[0]), compare(x.half[1])}};
}
inline I32x16 look_up_either(I32x16 table, I32x16 other, I32x16 x, ByteMask is_other) {
  const I32x16 a = look_up(table, x), b = look_up(other, x);
  return {{_mm256_blendv_epi8(a.half[0], b.half[0], is_other.half[0]),
           _mm256_blendv_epi8(a.half[1], b.half[1], is_other.half[1])}};
}

inline I32x16 choose(ByteMask mask, I32x16 a, I32x16 b) {
  return {{_mm256_blendv_epi8(b.half[0], a.half[0], mask.half[0]),
           _mm256_blendv_epi8(b.half[1], a.half[1], mask.half[1])}};
}

inline I32x16 add_bytes(I32x16 a, I32x16 b) {
  return {{_mm256_add_epi8(a.half[0], b.half[0]), _mm256_add_epi8(a.half[1], b.half[1])}};
}
// The mean of x and (x - 3) / 2 reaches 64 at 86, and 128 at 171.
inline I32x16 thirds(I32x16 x) {
  const auto of = [](__m256i a) {
    const __m256i less = _mm256_subs_epu8(a, _mm256_set1_epi8(4));
    const __m256i mean = _mm256_avg_epu8(a, _mm256_avg_epu8(less, _mm256_setzero_si256()));
    return _mm256_and_si256(_mm256_srli_epi16(mean, 6), _mm256_set1_epi8(3));
  };
  return {{of(x.half[0]), of(x.half[1])}};
}

inline I32x16 bits_and(I32x16 a, I32x16 b) {
  return {{_mm256_and_si256(a.half[0], b.half[0]), _mm256_and_si256(a.half[1], b.half[1])}};
}
inline I32x16 bits_or(I32x16 a, I32x16 b) {
  return {{_mm256_or_si256(a.half[0], b.half[0]), _mm256_or_si256(a.half[1], b.half[1])}};
}
inline I32x16 bits_xor(I32x16 a, I32x16 b) {
  return {{_mm256_xor_si256(a.half[0], b.half[0]), _mm256_xor_si256(a.half[1], b.half[1])}};
}
template <int n>
inline I32x16 left_16(I32x16 x) {
  return {{_mm256_slli_epi16(x.half[0], n), _mm256_slli_epi16(x.half[1], n)}};
}
template <int n>
inline I32x16 right_16(I32x16 x) {
  return {{_mm256_srli_epi16(x.half[0], n), _mm256_srli_epi16(x.half[1], n)}};
}
inline I32x16 left_32(I32x16 x, int n) {
  return {{_mm256_slli_epi32(x.half[0], n), _mm256_slli_epi32(x.half[1], n)}};
}
inline I32x16 right_32(I32x16 x, int n) {
  return {{_mm256_srli_epi32(x.half[0], n), _mm256_srli_epi32(x.half[1], n)}};
}
inline I32x16 right_signed_32(I32x16 x, int n) {
  return {{_mm256_srai_epi32(x.half[0], n), _mm256_srai_epi32(x.half[1], n)}};
}
inline I32x16 each_byte(int v) {
  const __m256i x = _mm256_set1_epi8(static_cast<char>(v));
  return {{x, x}};
}
inline I32x16 each_dword(int v) {
  const __m256i x = _mm256_set1_epi32(v);
  return {{x, x}};
}
inline F32x16 each(float v) {
  const __m256 x = _mm256_set1_ps(v);
  return {{x, x}};
}
inline F32x16 multiply(F32x16 a, F32x16 b) {
  return {{_mm256_mul_ps(a.half[0], b.half[0]), _mm256_mul_ps(a.half[1], b.half[1])}};
}
inline F32x16 to_float(I32x16 x) {
  return {{_mm256_cvtepi32_ps(x.half[0]), _mm256_cvtepi32_ps(x.half[1])}};
}
inline F32x16 as_floats(I32x16 x) {
  return {{_mm256_castsi256_ps(x.half[0]), _mm256_castsi256_ps(x.half[1])}};
}
inline I32x16 to_integer(F32x16 x) {
  return {{_mm256_cvtps_epi32(x.half[0]), _mm256_cvtps_epi32(x.half[1])}};
}
inline I32x16 add(I32x16 a, I32x16 b) {
  return {{_mm256_add_epi32(a.half[0], b.half[0]), _mm256_add_epi32(a.half[1], b.half[1])}};
}
inline F32x16 add(F32x16 a, F32x16 b) {
  return {{_mm256_add_ps(a.half[0], b.half[0]), _mm256_add_ps(a.half[1], b.half[1])}};
}
inline F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 c) {
  return {{_mm256_fmadd_ps(a.half[0], b.half[0], c.half[0]),
           _mm256_fmadd_ps(a.half[1], b.half[1], c.half[1])}};
}
inline F32x16 subtract_product(F32x16 a, F32x16 b, F32x16 c) {  // c - a b
  return {{_mm256_fnmadd_ps(a.half[0], b.half[0], c.half[0]),
           _mm256_fnmadd_ps(a.half[1], b.half[1], c.half[1])}};
}
inline __m256i broadcast(const void* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

inline I32x16 each_word_at(const void* p) {
  return {{broadcast(p), broadcast(p)}};
}
inline I32x16 add_pair_products(I32x16 a, I32x16 b, I32x16 c) {
  return {{_mm256_add_epi32(_mm256_madd_epi16(a.half[0], b.half[0]), c.half[0]),
           _mm256_add_epi32(_mm256_madd_epi16(a.half[1], b.half[1]), c.half[1])}};
}
inline __m256 low_halves_of(__m256i x) {
  // Moves the low 16 bits of the four lanes of each half to its first 8 bytes.
  const __m256i pick = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, 0,
                                        1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, pick), 0b1000);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
inline F32x16 low_halves(I32x16 x) {
  return {{low_halves_of(x.half[0]), low_halves_of(x.half[1])}};
}
inline void store(void* p, I32x16 x) {
  auto* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.half[0]);
  _mm256_storeu_si256(q + 1, x.half[1]);
}
inline void store(void* p, F32x16 x) {
  auto* q = static_cast<float*>(p);
  _mm256_storeu_ps(q, x.half[0]);
  _mm256_storeu_ps(q + 8, x.half[1]);
}
inline F32x16 load(const float* p) {
  return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}};
}

// Where to read sixteen elements. If only `count` are at p, they are copied to `copy`, so that no
// read goes beyond them.
template <typename Element>
inline const std::byte* sixteen(const std::byte* p, std::size_t count, Element (&copy)[16]) {
  if (count == 16) return p;
  std::memcpy(copy, p, count * sizeof(Element));
  return reinterpret_cast<const std::byte*>(copy);
}
inline __m128i load_128(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F32x16 load_floats(const std::byte* p, std::size_t count) {
  float copy[16] = {};
  return load(reinterpret_cast<const float*>(sixteen(p, count, copy)));
}
inline F32x16 load_halves(const std::byte* p, std::size_t count) {
  std::uint16_t copy[16] = {};
  const std::byte* q = sixteen(p, count, copy);
  return {{_mm256_cvtph_ps(load_128(q)), _mm256_cvtph_ps(load_128(q + 16))}};
}
inline F32x16 load_bfloats(const std::byte* p, std::size_t count) {
  std::uint16_t copy[16] = {};
  const std::byte* q = sixteen(p, count, copy);
  const auto widen = [](__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  };
  return {{widen(load_128(q)), widen(load_128(q + 16))}};
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t few_columns = 4;

inline __m256i load_q(const std::uint8_t (*q)[4], int half) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 8 * half));
}

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

// dot[c] = the exact products of `groups` times four weights with the activations of each column.
template <int columns, int groups, int largest_q, typename Panel>
inline void dot_groups(const Panel& p, std::size_t group, const std::int8_t* const* q,
                       I32x16 (&dot)[columns]) {
  constexpr int run = groups_in_16_bits(largest_q, groups);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int c = 0; c < columns; ++c) dot[c] = each_dword(0);
#pragma GCC unroll 8
  for (int start = 0; start < groups; start += run) {
    __m256i sum[columns][2];
#pragma GCC unroll 8
    for (int g = start; g < start + run; ++g) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i w = load_q(p.q[group + g], h);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const __m256i a = broadcast(q[c] + 4 * (group + g));
          const __m256i products = byte_products<largest_q>(w, a);
          sum[c][h] = g == start ? products : _mm256_add_epi16(sum[c][h], products);
        }
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        dot[c].half[h] = _mm256_add_epi32(dot[c].half[h], _mm256_madd_epi16(sum[c][h], ones));
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

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format> {
  using Column = ColumnA256;
  static constexpr int tile_columns = 4;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    for (int i = 0; i < panels; ++i) multiply_panel<columns>(p[i], a, k, sums + i * panel_rows);
  }

 private:
  template <int columns>
  static void multiply_panel(const IntegerPanel& p, const Column* a, std::size_t k, float* sums) {
    constexpr int groups = Format::sub_block / 4;
    const BlockA256* x[columns];
    const std::int8_t* q[columns];
    BlockSum<Format> block[columns];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
    }
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      I32x16 dot[columns];
      dot_groups<columns, groups, Format::largest_q>(p, s * groups, q, dot);
      const F32x16 scale = load(p.scale[s]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        if constexpr (Format::has_offset) {
          dot[c] = add(dot[c], Format::offset_dot(*x[c], s));
        }
        block[c].add_scaled(dot[c], scale);
      }
      if (s % Format::exact_run != Format::exact_run - 1) continue;
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) block[c].end_run();
    }
    for (int c = 0; c < columns; ++c) finish(p, *x[c], block[c].total(), sums + c * sums_stride);
  }

  // Scales the sum of a block, subtracts the minima, and adds the result to the sum of the row.
  static void finish(const IntegerPanel& p, const BlockA256& a, F32x16 block, float* sum_at) {
    F32x16 scaled = sluice::kernels::multiply(block, load(p.d));
    if constexpr (Format::has_min) {
      I32x16 pairs[Format::min_pairs];
      for (int j = 0; j < Format::min_pairs; ++j) pairs[j] = load_words(p.min[j]);
      scaled = subtract_product(to_float(min_dot<Format>(pairs, a)), load(p.dmin), scaled);
    }
    store(sum_at, multiply_add(scaled, each(a.d), load(sum_at)));
  }
};

template <typename Format>
struct SmallKernel : UnpacksSmall<Format> {
  using Column = ColumnA32;
  static constexpr int tile_columns = 4;

  static Column column(const Activations& x, std::size_t c) { return x.a32(c); }

  template <int panels, int columns>
  static void multiply(const SmallPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    for (int i = 0; i < panels; ++i) {
      multiply_panel<columns>(p[i], a, k, weights, sums + i * panel_rows);
    }
  }

 private:
  template <int columns>
  static void multiply_panel(const SmallPanel& p, const Column* a, std::size_t k,
                             std::size_t weights, float* sums) {
    const BlockA32* x[columns];
    const std::int8_t* q[columns];
    F32x16 sum[columns];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
      sum[c] = load(sums + c * sums_stride);
    }
    constexpr int groups = Format::sub_block / 4;
    for (std::size_t at = 0; at < weights / Format::sub_block; ++at) {
      const std::size_t s = at / scales_of_32<Format>;
      I32x16 dot[columns];
      dot_groups<columns, groups, Format::largest_q>(p, groups * at, q, dot);
      const F32x16 d = load(p.d[at]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        if constexpr (Format::has_offset) {
          dot[c] = add(dot[c], each_dword(offset_dot<Format>(*x[c], at)));
        }
        const F32x16 scale = sluice::kernels::multiply(d, each(x[c]->d[s]));
        sum[c] = multiply_add(to_float(dot[c]), scale, sum[c]);
        if constexpr (Format::has_min) {
          sum[c] = multiply_add(load(p.m[s]), each(x[c]->d_sums[s]), sum[c]);
        }
      }
    }
    for (int c = 0; c < columns; ++c) store(sums + c * sums_stride, sum[c]);
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_part.h"
