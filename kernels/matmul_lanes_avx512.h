// Sixteen lanes of AVX-512 for kernels/matmul_formats.h, and what the kernels of the AVX-512 and
// AMX tiers share. Included by the file of each of these tiers after it has defined the constants
// that are described there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "kernels/matmul_driver.h"

namespace sluice::kernels {
namespace {

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

inline RowDwords load_dwords(FileRows& rows, std::size_t offset) {
  const std::byte* p = rows.block + offset;
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

inline I32x16 load_words(const void* p) {
  return _mm512_loadu_si512(p);
}

inline I32x16 load_bytes(const std::byte* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline I32x16 byte_table(const std::uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I32x16 look_up(I32x16 table, I32x16 x) {
  return _mm512_shuffle_epi8(table, x);
}

// Entries first to first + count - 1 of a table by the numbers in the halves of every lane, of
// which only the bits below `count` are looked at: 64 of them by one instruction.
template <int first, int count>
[[gnu::always_inline]] inline I32x16 look_up_among(const std::uint16_t* table, I32x16 numbers) {
  if constexpr (count == 64) {
    const auto load = [&](int at) { return _mm512_loadu_si512(table + at); };
    return _mm512_permutex2var_epi16(load(first), numbers, load(first + 32));
  } else {
    const I32x16 low = look_up_among<first, count / 2>(table, numbers);
    const I32x16 high = look_up_among<first + count / 2, count / 2>(table, numbers);
    const __mmask32 is_high = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(count / 2));
    return _mm512_mask_blend_epi16(is_high, low, high);
  }
}
// Entries of 16 bits by their numbers in the halves of every lane.
template <int entries>
[[gnu::always_inline]] inline I32x16 look_up_pairs(const std::uint16_t* table, I32x16 numbers) {
  return look_up_among<0, entries>(table, numbers);
}

// Byte i of every lane becomes its byte number (pattern >> 8 i) & 3.
template <int pattern>
inline I32x16 shuffle_bytes(I32x16 x) {
  const __m128i lane = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  return _mm512_shuffle_epi8(x,
                             _mm512_broadcast_i32x4(_mm_add_epi32(_mm_set1_epi32(pattern), lane)));
}

constexpr bool keeps_signs = false;

using ByteMask = __mmask64;

inline ByteMask has_bits(I32x16 x, int pattern) {
  return _mm512_test_epi8_mask(x, _mm512_set1_epi32(pattern));
}
inline I32x16 look_up_either(I32x16 table, I32x16 other, I32x16 x, ByteMask is_other) {
  return _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(table, x), is_other, other, x);
}

inline I32x16 choose(ByteMask mask, I32x16 a, I32x16 b) {
  return _mm512_mask_blend_epi8(mask, b, a);
}

inline I32x16 add_bytes(I32x16 a, I32x16 b) {
  return _mm512_add_epi8(a, b);
}
inline I32x16 thirds(I32x16 x) {
  const auto from = [&](int least) {
    return _mm512_cmpge_epu8_mask(x, _mm512_set1_epi8(static_cast<char>(least)));
  };
  const I32x16 ones = _mm512_maskz_mov_epi8(from(86), _mm512_set1_epi8(1));
  return _mm512_mask_mov_epi8(ones, from(171), _mm512_set1_epi8(2));
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
#ifdef __AVX512VBMI__
#define SLUICE_LOOKS_UP_BYTES
#define SLUICE_HAS_GRID_PRODUCT

inline I32x16 look_up_bytes(const std::uint8_t* table, I32x16 x) {
  const auto load = [&](int at) { return _mm512_loadu_si512(table + at); };
  return choose(_mm512_movepi8_mask(x), _mm512_permutex2var_epi8(load(128), x, load(192)),
                _mm512_permutex2var_epi8(load(0), x, load(64)));
}

// The bytes number first, second, third and fourth of every lane of x and, from 4 on, of y.
template <int first, int second, int third, int fourth>
inline I32x16 bytes_of_both(I32x16 x, I32x16 y) {
  constexpr auto at = [](int byte) { return byte < 4 ? byte : 64 + byte - 4; };
  const I32x16 lanes = _mm512_mullo_epi32(
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), each_byte(4));
  const I32x16 order = _mm512_add_epi32(
      lanes, _mm512_set1_epi32(at(first) | at(second) << 8 | at(third) << 16 | at(fourth) << 24));
  return _mm512_permutex2var_epi8(x, order, y);
}
// Byte i of every lane becomes the eight bits of the lane from the i-th of these on. Bits beyond
// the lane are any.
template <int first, int second, int third, int fourth>
inline I32x16 bits_from(I32x16 x) {
  constexpr int from = first | second << 8 | third << 16 | fourth << 24;
  const __m512i odd_lanes_from = _mm512_set1_epi64(std::int64_t{0x20202020} << 32);
  return _mm512_multishift_epi64_epi8(_mm512_add_epi8(_mm512_set1_epi32(from), odd_lanes_from), x);
}
// The byte of a table of 128 for the low seven bits of each byte of x.
inline I32x16 look_up_sevens(const std::uint8_t* table, I32x16 x) {
  return _mm512_permutex2var_epi8(_mm512_loadu_si512(table), x, _mm512_loadu_si512(table + 64));
}
inline I32x16 even_bytes(I32x16 x, I32x16 y) {
  return bytes_of_both<0, 2, 4, 6>(x, y);
}
inline I32x16 odd_bytes(I32x16 x, I32x16 y) {
  return bytes_of_both<1, 3, 5, 7>(x, y);
}

#endif

inline I32x16 each_word_at(const void* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
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
inline I32x16 to_integer(F32x16 x) {
  return _mm512_cvtps_epi32(x);
}
inline F32x16 as_floats(I32x16 x) {
  return _mm512_castsi512_ps(x);
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

inline F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline F32x16 subtract_product(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_fnmadd_ps(a, b, c);
}
inline I32x16 add(I32x16 a, I32x16 b) {
  return _mm512_add_epi32(a, b);
}

inline I32x16 multiply(I32x16 a, I32x16 b) {
  return _mm512_mullo_epi32(a, b);
}
inline I32x16 add_pair_products(I32x16 a, I32x16 b, I32x16 c) {
  return _mm512_dpwssd_epi32(c, a, b);
}

inline F32x16 load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline F32x16 add(F32x16 a, F32x16 b) {
  return _mm512_add_ps(a, b);
}
inline F32x16 load_floats(const std::byte* p, std::size_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
}
inline __m256i load_16_bit(const std::byte* p, std::size_t count) {
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), p);
}
inline F32x16 load_halves(const std::byte* p, std::size_t count) {
  return _mm512_cvtph_ps(load_16_bit(p, count));
}
inline F32x16 load_bfloats(const std::byte* p, std::size_t count) {
  return as_floats(left_32(_mm512_cvtepu16_epi32(load_16_bit(p, count)), 16));
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t few_columns = 8, few_sums = 16;

[[gnu::always_inline]] inline I32x16 add_byte_products(I32x16 sum, I32x16 w, const std::int8_t* q,
                                                       std::size_t group) {
  return _mm512_dpbusd_epi32(sum, w, each_word_at(q + 4 * group));
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_byte_products.h"
