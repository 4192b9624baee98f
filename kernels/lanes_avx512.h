// The operations of lanes_scalar.h, which documents them, with AVX-512 (F, BW, VL, DQ, VNNI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

namespace sluice::kernels {
namespace {

constexpr std::size_t lanes = 16;

constexpr int accumulators_max = 16;  // half of the registers
constexpr int tile_heads_max = 8;
constexpr int integer_tile_heads = 8;
constexpr int integer_tile_vectors = 2;

struct F32x16 {
  __m512 v;
};

struct I32x16 {
  __m512i v;
};

// Assembly, because GCC drops calls of functions that have no other effect.
inline void prefetch(const void* p) {
  __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
}
inline void prefetch_far(const void* p) {
  __asm__ volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}

inline F32x16 broadcast(float x) {
  return {_mm512_set1_ps(x)};
}

inline I32x16 broadcast_int(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}

inline __mmask16 mask_of(std::size_t count) {
  return static_cast<__mmask16>((1U << count) - 1);
}

inline F32x16 load(const float* p, std::size_t count, float rest = 0) {
  if (count == lanes) return {_mm512_loadu_ps(p)};
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask_of(count), p)};
}

inline F32x16 load(const std::uint16_t* p, std::size_t count) {
  if (count == lanes) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(count), p))};
}

inline void store(F32x16 a, float* p, std::size_t count) {
  if (count == lanes) {
    _mm512_storeu_ps(p, a.v);
  } else {
    _mm512_mask_storeu_ps(p, mask_of(count), a.v);
  }
}

inline void store(F32x16 a, std::uint16_t* p, std::size_t count) {
  const __m256i halves = _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  if (count == lanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
  } else {
    _mm256_mask_storeu_epi16(p, mask_of(count), halves);
  }
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}

inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}

inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}

inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}

inline F32x16 abs(F32x16 a) {
  return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)};
}

inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}

inline F32x16 keep(F32x16 a, std::size_t begin, std::size_t end, float rest) {
  const auto kept = static_cast<__mmask16>(mask_of(end) & ~mask_of(begin));
  return {_mm512_mask_blend_ps(kept, _mm512_set1_ps(rest), a.v)};
}

inline F32x16 times_power_of_two(F32x16 a, F32x16 n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}

inline float sum(F32x16 a) {
  const __m256 of_eight =
      _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 of_four =
      _mm_add_ps(_mm256_castps256_ps128(of_eight), _mm256_extractf128_ps(of_eight, 1));
  const __m128 of_two = _mm_add_ps(of_four, _mm_movehl_ps(of_four, of_four));
  return _mm_cvtss_f32(_mm_add_ss(of_two, _mm_movehdup_ps(of_two)));
}

// Adds the upper lanes of each register to the lower ones, down to four lanes: those of a, b, c, d.
inline __m512 fold_to_four(F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  const auto fold = [](F32x16 x, F32x16 y) {  // eight lanes of x, then eight of y
    return _mm512_add_ps(_mm512_shuffle_f32x4(x.v, y.v, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm512_shuffle_f32x4(x.v, y.v, _MM_SHUFFLE(3, 2, 3, 2)));
  };
  const __m512 first = fold(a, b), second = fold(c, d);
  return _mm512_add_ps(_mm512_shuffle_f32x4(first, second, _MM_SHUFFLE(2, 0, 2, 0)),
                       _mm512_shuffle_f32x4(first, second, _MM_SHUFFLE(3, 1, 3, 1)));
}

inline void sum_four(const F32x16* a, float* out) {
  const __m512 four = fold_to_four(a[0], a[1], a[2], a[3]);
  const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, _MM_SHUFFLE(1, 0, 3, 2)));
  const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, _MM_SHUFFLE(2, 3, 0, 1)));
  // Compresses into a register: compressing into memory takes a hundred cycles on Zen 4 and 5.
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, one)));
}

inline void sum_each(const F32x16 (&a)[16], float* out) {
  __m512 four[4];  // of each four lanes in four[i], a sum: 0, 4, 8 and 12, plus i
  for (int i = 0; i < 4; ++i) four[i] = fold_to_four(a[i], a[4 + i], a[8 + i], a[12 + i]);
  __m512 two[2];
  for (int i = 0; i < 2; ++i) {
    const __m512 x = four[2 * i], y = four[2 * i + 1];
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(x, y, _MM_SHUFFLE(1, 0, 1, 0)),
                           _mm512_shuffle_ps(x, y, _MM_SHUFFLE(3, 2, 3, 2)));
  }
  _mm512_storeu_ps(out, _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], _MM_SHUFFLE(2, 0, 2, 0)),
                                      _mm512_shuffle_ps(two[0], two[1], _MM_SHUFFLE(3, 1, 3, 1))));
}

inline float largest(F32x16 a) {
  const __m256 of_eight =
      _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 of_four =
      _mm_max_ps(_mm256_castps256_ps128(of_eight), _mm256_extractf128_ps(of_eight, 1));
  const __m128 of_two = _mm_max_ps(of_four, _mm_movehl_ps(of_four, of_four));
  return _mm_cvtss_f32(_mm_max_ss(of_two, _mm_movehdup_ps(of_two)));
}

inline F32x16 max_or_nan(F32x16 a, F32x16 b) {
  return {
      _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}

inline float largest_or_nan(F32x16 a) {
  F32x16 r = max_or_nan(a, {_mm512_shuffle_f32x4(a.v, a.v, _MM_SHUFFLE(1, 0, 3, 2))});
  r = max_or_nan(r, {_mm512_shuffle_f32x4(r.v, r.v, _MM_SHUFFLE(2, 3, 0, 1))});
  r = max_or_nan(r, {_mm512_permute_ps(r.v, _MM_SHUFFLE(1, 0, 3, 2))});
  r = max_or_nan(r, {_mm512_permute_ps(r.v, _MM_SHUFFLE(2, 3, 0, 1))});
  return _mm512_cvtss_f32(r.v);
}

inline I32x16 round_to_int(F32x16 a) {
  return {_mm512_cvtps_epi32(a.v)};
}
inline F32x16 to_float(I32x16 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
inline F32x16 lookup(const float (&table)[lanes], F32x16 a) {
  return {_mm512_permutexvar_ps(_mm512_castps_si512(a.v), _mm512_loadu_ps(table))};
}
inline std::int32_t sum(I32x16 a) {
  return _mm512_reduce_add_epi32(a.v);
}

inline void store(I32x16 a, std::int8_t* p) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

inline void store_transposed(const std::int8_t* bytes, std::int8_t* p, std::size_t stride) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i turned =
      _mm512_shuffle_epi8(_mm512_loadu_si512(bytes), _mm512_broadcast_i32x4(order));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_castsi512_si128(turned));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + stride), _mm512_extracti32x4_epi32(turned, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 2 * stride),
                   _mm512_extracti32x4_epi32(turned, 2));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 3 * stride),
                   _mm512_extracti32x4_epi32(turned, 3));
}

inline void store_bits(I32x16 a, float* p, std::size_t count) {
  store(F32x16{_mm512_castsi512_ps(a.v)}, p, count);
}

inline I32x16 load_bits(const float* p, std::size_t count) {
  return {_mm512_castps_si512(load(p, count).v)};
}

// The second and the third of every four words change places: a second time they are back.
inline __m256i exchanged(__m256i words) {
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order));
}

inline void store_words(I32x16 words, std::int16_t* p) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), exchanged(_mm512_cvtepi32_epi16(words.v)));
}

// Both loads of a group of words as they stand: GCC 12 would load 64 bits and take them apart.
inline I32x16 broadcast_pair(const std::int16_t* p) {
  I32x16 r;
  __asm__("vpbroadcastd %1, %0" : "=v"(r.v) : "m"(*reinterpret_cast<const std::int16_t(*)[2]>(p)));
  return r;
}

inline I32x16 even_bytes(I32x16 a) {
  return {_mm512_srai_epi16(_mm512_slli_epi16(a.v, 8), 8)};
}
inline I32x16 odd_bytes(I32x16 a) {
  return {_mm512_srai_epi16(a.v, 8)};
}

// Assembly, because with the intrinsic GCC 12 makes a copy of every sum.
inline void add_products(I32x16& sum, const I32x16& a, const I32x16& b) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
}

inline I32x16 operator+(I32x16 a, const I32x16& b) {
  return {_mm512_add_epi32(a.v, b.v)};
}

struct Pairs {
  F32x16 first, second;
};

inline Pairs load_pairs(const float* p) {
  const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {{_mm512_permutex2var_ps(a, even, b)}, {_mm512_permutex2var_ps(a, odd, b)}};
}

inline void store_pairs(const Pairs& a, float* p) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(a.first.v, low, a.second.v));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(a.first.v, high, a.second.v));
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/lanes_words.h"
