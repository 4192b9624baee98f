// The operations of lanes_scalar.h, which documents them, with AVX2, FMA and F16C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

namespace sluice::kernels {
namespace {

constexpr std::size_t lanes = 16;

// An accumulator takes two of the sixteen registers.
constexpr int accumulators_max = 4;
constexpr int tile_heads_max = 2;
constexpr int integer_tile_heads = 4;
constexpr int integer_tile_vectors = 1;

struct F32x16 {
  __m256 low, high;
};

struct I32x16 {
  __m256i low, high;
};

// Assembly, because GCC drops calls of functions that have no other effect.
inline void prefetch(const void* p) {
  __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
}
inline void prefetch_far(const void* p) {
  __asm__ volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}

inline F32x16 broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

inline I32x16 broadcast_int(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

// All bits set in the first `count` of 16 lanes.
inline I32x16 mask_of(std::size_t count) {
  const __m256i n = _mm256_set1_epi32(static_cast<int>(count));
  return {_mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

inline F32x16 load(const float* p, std::size_t count, float rest = 0) {
  if (count == lanes) return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  const I32x16 mask = mask_of(count);
  const __m256 fill = _mm256_set1_ps(rest);
  // p + 8 is computed only if lanes 8 and up are needed: it might lie beyond the array.
  const __m256 low = _mm256_maskload_ps(p, mask.low);
  const __m256 high = count > 8 ? _mm256_maskload_ps(p + 8, mask.high) : fill;
  return {_mm256_blendv_ps(fill, low, _mm256_castsi256_ps(mask.low)),
          _mm256_blendv_ps(fill, high, _mm256_castsi256_ps(mask.high))};
}

inline F32x16 load(const std::uint16_t* p, std::size_t count) {
  std::uint16_t copy[lanes] = {};
  if (count < lanes) {
    for (std::size_t i = 0; i < count; ++i) copy[i] = p[i];
    p = copy;
  }
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}

inline void store(F32x16 a, float* p, std::size_t count) {
  if (count == lanes) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
    return;
  }
  const I32x16 mask = mask_of(count);
  _mm256_maskstore_ps(p, mask.low, a.low);
  if (count > 8) _mm256_maskstore_ps(p + 8, mask.high, a.high);
}

inline void store(F32x16 a, std::uint16_t* p, std::size_t count) {
  const __m128i low = _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m128i high = _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  std::uint16_t copy[lanes];
  std::uint16_t* target = count == lanes ? p : copy;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target + 8), high);
  if (target == p) return;
  for (std::size_t i = 0; i < count; ++i) p[i] = copy[i];
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}

inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

inline F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}

inline F32x16 keep(F32x16 a, std::size_t begin, std::size_t end, float rest) {
  const I32x16 before = mask_of(begin), until = mask_of(end);
  const __m256 fill = _mm256_set1_ps(rest);
  const auto half = [&](__m256 x, __m256i low, __m256i high) {
    return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(_mm256_andnot_si256(low, high)));
  };
  return {half(a.low, before.low, until.low), half(a.high, before.high, until.high)};
}

inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// Multiplies in two steps, because 2^n may not be a float. The first step is exact, as a is near 1.
inline __m256 times_power_of_two(__m256 a, __m256 n) {
  const __m256i exponent = _mm256_cvtps_epi32(n);
  const __m256i part = _mm256_srai_epi32(exponent, 1);
  const __m256 scaled = _mm256_mul_ps(a, power_of_two(part));
  return _mm256_mul_ps(scaled, power_of_two(_mm256_sub_epi32(exponent, part)));
}

inline F32x16 times_power_of_two(F32x16 a, F32x16 n) {
  return {times_power_of_two(a.low, n.low), times_power_of_two(a.high, n.high)};
}

inline float sum(F32x16 a) {
  const __m256 of_eight = _mm256_add_ps(a.low, a.high);
  const __m128 of_four =
      _mm_add_ps(_mm256_castps256_ps128(of_eight), _mm256_extractf128_ps(of_eight, 1));
  const __m128 of_two = _mm_add_ps(of_four, _mm_movehl_ps(of_four, of_four));
  return _mm_cvtss_f32(_mm_add_ss(of_two, _mm_movehdup_ps(of_two)));
}

inline void sum_four(const F32x16* a, float* out) {
  __m256 eight[4];
  for (int i = 0; i < 4; ++i) eight[i] = _mm256_add_ps(a[i].low, a[i].high);
  const auto fold = [](__m256 x, __m256 y) {  // four lanes of x, then four of y
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  };
  const __m256 first = fold(eight[0], eight[1]), second = fold(eight[2], eight[3]);
  const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(first, second, _MM_SHUFFLE(1, 0, 1, 0)),
                                   _mm256_shuffle_ps(first, second, _MM_SHUFFLE(3, 2, 3, 2)));
  const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));  // 0 . 2 . 1 . 3 .
  const __m128 even = _mm256_castps256_ps128(one), odd = _mm256_extractf128_ps(one, 1);
  _mm_storeu_ps(out, _mm_blend_ps(even, _mm_moveldup_ps(odd), 0b1010));
}

inline float largest(F32x16 a) {
  const __m256 of_eight = _mm256_max_ps(a.low, a.high);
  const __m128 of_four =
      _mm_max_ps(_mm256_castps256_ps128(of_eight), _mm256_extractf128_ps(of_eight, 1));
  const __m128 of_two = _mm_max_ps(of_four, _mm_movehl_ps(of_four, of_four));
  return _mm_cvtss_f32(_mm_max_ss(of_two, _mm_movehdup_ps(of_two)));
}

inline __m256 max_or_nan(__m256 a, __m256 b) {
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

inline F32x16 max_or_nan(F32x16 a, F32x16 b) {
  return {max_or_nan(a.low, b.low), max_or_nan(a.high, b.high)};
}

inline float largest_or_nan(F32x16 a) {
  __m256 r = max_or_nan(a.low, a.high);
  r = max_or_nan(r, _mm256_permute2f128_ps(r, r, 1));
  r = max_or_nan(r, _mm256_permute_ps(r, _MM_SHUFFLE(1, 0, 3, 2)));
  r = max_or_nan(r, _mm256_permute_ps(r, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm256_cvtss_f32(r);
}

inline I32x16 round_to_int(F32x16 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}

inline F32x16 to_float(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}

inline F32x16 lookup(const float (&table)[lanes], F32x16 a) {
  const __m256 first = _mm256_loadu_ps(table), second = _mm256_loadu_ps(table + 8);
  const auto half = [&](__m256 x) {  // bit 3 of an index, as a sign, chooses the half of the table
    const __m256i at = _mm256_castps_si256(x);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(first, at),
                            _mm256_permutevar8x32_ps(second, at),
                            _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
  };
  return {half(a.low), half(a.high)};
}

inline std::int32_t sum(I32x16 a) {
  const __m256i eight = _mm256_add_epi32(a.low, a.high);
  __m128i r = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  r = _mm_add_epi32(r, _mm_shuffle_epi32(r, _MM_SHUFFLE(1, 0, 3, 2)));
  r = _mm_add_epi32(r, _mm_shuffle_epi32(r, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(r);
}

// Sixteen words; every lane must be in the range of int16.
inline __m256i narrowed(I32x16 a) {
  const __m256i words = _mm256_packs_epi32(a.low, a.high);  // in the order 0..3 8..11 4..7 12..15
  return _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0));
}

inline void store(I32x16 a, std::int8_t* p) {
  const __m256i words = narrowed(a);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline void store_transposed(const std::int8_t* bytes, std::int8_t* p, std::size_t stride) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (std::size_t block = 0; block < 4; ++block) {
    const __m128i from = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + block);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + block * stride), _mm_shuffle_epi8(from, order));
  }
}

inline void store_bits(I32x16 a, float* p, std::size_t count) {
  store(F32x16{_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}, p, count);
}

inline I32x16 load_bits(const float* p, std::size_t count) {
  const F32x16 a = load(p, count);
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}

inline void store_words(I32x16 words, std::int16_t* p) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_shuffle_epi8(narrowed(words), order));
}

inline I32x16 broadcast_pair(const std::int16_t* p) {
  using Pair [[gnu::may_alias]] = std::int32_t;
  return broadcast_int(*reinterpret_cast<const Pair*>(p));
}

inline I32x16 even_bytes(I32x16 a) {
  const auto half = [](__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); };
  return {half(a.low), half(a.high)};
}
inline I32x16 odd_bytes(I32x16 a) {
  return {_mm256_srai_epi16(a.low, 8), _mm256_srai_epi16(a.high, 8)};
}

inline void add_products(__m256i& sum, __m256i a, __m256i b) {
#ifdef __AVXVNNI__
  // Assembly, because with the intrinsic GCC 12 makes a copy of every sum.
  __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#else
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  __asm__("" : "+x"(sum));  // or GCC 12 adds products to each other first, and sums to memory
#endif
}

inline void add_products(I32x16& sum, const I32x16& a, const I32x16& b) {
  add_products(sum.low, a.low, b.low);
  add_products(sum.high, a.high, b.high);
}

inline I32x16 operator+(I32x16 a, const I32x16& b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

struct Pairs {
  F32x16 first, second;
};

// The even or the odd ones of sixteen neighbouring floats.
template <int selection>
inline __m256 every_other(__m256 a, __m256 b) {
  const __m256 picked = _mm256_shuffle_ps(a, b, selection);  // in the order 0 2 1 3 of 64 bits
  return _mm256_castsi256_ps(
      _mm256_permute4x64_epi64(_mm256_castps_si256(picked), _MM_SHUFFLE(3, 1, 2, 0)));
}

inline Pairs load_pairs(const float* p) {
  const __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
  const __m256 c = _mm256_loadu_ps(p + 16), d = _mm256_loadu_ps(p + 24);
  constexpr int even = _MM_SHUFFLE(2, 0, 2, 0), odd = _MM_SHUFFLE(3, 1, 3, 1);
  return {{every_other<even>(a, b), every_other<even>(c, d)},
          {every_other<odd>(a, b), every_other<odd>(c, d)}};
}

inline void store_interleaved(__m256 a, __m256 b, float* p) {
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

inline void store_pairs(const Pairs& a, float* p) {
  store_interleaved(a.first.low, a.second.low, p);
  store_interleaved(a.first.high, a.second.high, p + 16);
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/lanes_words.h"
