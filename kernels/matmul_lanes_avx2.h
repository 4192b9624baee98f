// Sixteen lanes of AVX2 with FMA and F16C for kernels/matmul_formats.h: two 256-bit registers hold
// one 32-bit value for each of the 16 rows of a panel. Included by the file of each tier that has
// them, after it has defined the constants that are described there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "kernels/matmul_driver.h"

namespace sluice::kernels {
namespace {

constexpr int float_sums = 1;  // in four parts, of two registers each
constexpr bool keeps_signs = false;
#define SLUICE_LOOKS_UP_ENTRIES

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

// Byte i of every lane becomes its byte number (pattern >> 8 i) & 3.
template <int pattern>
inline __m256i shuffle_bytes(__m256i x) {
  const __m256i control = _mm256_add_epi32(
      _mm256_set1_epi32(pattern), _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0,
                                                    0x04040404, 0x08080808, 0x0c0c0c0c));
  return _mm256_shuffle_epi8(x, control);
}
template <int pattern>
inline I32x16 shuffle_bytes(I32x16 x) {
  return {{shuffle_bytes<pattern>(x.half[0]), shuffle_bytes<pattern>(x.half[1])}};
}

using ByteMask = I32x16;  // bytes of 0 or 255

inline __m256i has_bits(__m256i x, int pattern) {
  const __m256i bits = _mm256_set1_epi32(pattern);
  return _mm256_cmpeq_epi8(_mm256_and_si256(x, bits), bits);
}
inline ByteMask has_bits(I32x16 x, int pattern) {
  return {{has_bits(x.half[0], pattern), has_bits(x.half[1], pattern)}};
}
inline I32x16 choose(ByteMask mask, I32x16 a, I32x16 b) {
  return {{_mm256_blendv_epi8(b.half[0], a.half[0], mask.half[0]),
           _mm256_blendv_epi8(b.half[1], a.half[1], mask.half[1])}};
}

inline I32x16 add_bytes(I32x16 a, I32x16 b) {
  return {{_mm256_add_epi8(a.half[0], b.half[0]), _mm256_add_epi8(a.half[1], b.half[1])}};
}
inline I32x16 negate_bytes(I32x16 x, ByteMask mask) {
  const auto negate = [](__m256i a, __m256i m) {
    return _mm256_sub_epi8(_mm256_xor_si256(a, m), m);
  };
  return {{negate(x.half[0], mask.half[0]), negate(x.half[1], mask.half[1])}};
}

// Entries of a table by the nth of the numbers of each of eight rows. Gathers take longer.
struct EightOctets {
  __m256i first, last;
};
template <int nth, std::size_t entries, typename Number, std::size_t of_row>
[[gnu::always_inline]] inline EightOctets look_up_octets_of_eight(
    const std::uint64_t (&table)[entries], const Number (*numbers)[of_row]) {
  const auto two_rows = [&](int row) __attribute__((always_inline)) {
    const std::uint64_t *first = &table[numbers[row][nth]], *second = &table[numbers[row + 1][nth]];
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(first));
    return _mm_loadh_pi(_mm_castsi128_ps(low), reinterpret_cast<const __m64*>(second));
  };
  const __m256 a = _mm256_set_m128(two_rows(4), two_rows(0));
  const __m256 b = _mm256_set_m128(two_rows(6), two_rows(2));
  return {_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
          _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd))};
}
template <int nth, std::size_t entries, typename Number>
[[gnu::always_inline]] inline __m256i look_up_quads_of_eight(const std::uint32_t (&table)[entries],
                                                             const Number (*numbers)[4]) {
  const auto entry = [&](int row) __attribute__((always_inline)) {
    return static_cast<int>(table[numbers[row][nth]]);
  };
  return _mm256_setr_epi32(entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6),
                           entry(7));
}

struct RowOctets {
  I32x16 first, last;
};
template <int nth, std::size_t entries, typename Number, std::size_t of_row>
[[gnu::always_inline]] inline RowOctets look_up_octets(
    const std::uint64_t (&table)[entries], const Number (&numbers)[panel_rows][of_row]) {
  const EightOctets low = look_up_octets_of_eight<nth>(table, numbers);
  const EightOctets high = look_up_octets_of_eight<nth>(table, numbers + 8);
  return {{{low.first, high.first}}, {{low.last, high.last}}};
}
template <int nth, std::size_t entries, typename Number>
[[gnu::always_inline]] inline I32x16 look_up_quads(const std::uint32_t (&table)[entries],
                                                   const Number (&numbers)[panel_rows][4]) {
  return {{look_up_quads_of_eight<nth>(table, numbers),
           look_up_quads_of_eight<nth>(table, numbers + 8)}};
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
template <int n>
inline I32x16 right_signed_16(I32x16 x) {
  return {{_mm256_srai_epi16(x.half[0], n), _mm256_srai_epi16(x.half[1], n)}};
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
inline I32x16 even_bytes(I32x16 x, I32x16 y) {
  return bits_or(bits_and(shuffle_bytes<0x02000200>(x), each_dword(0xffff)),
                 bits_and(shuffle_bytes<0x02000200>(y), each_dword(static_cast<int>(0xffff0000))));
}
inline I32x16 odd_bytes(I32x16 x, I32x16 y) {
  return even_bytes(right_16<8>(x), right_16<8>(y));
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
inline I32x16 multiply(I32x16 a, I32x16 b) {
  return {{_mm256_mullo_epi32(a.half[0], b.half[0]), _mm256_mullo_epi32(a.half[1], b.half[1])}};
}
inline I32x16 join_halves(I32x16 low, I32x16 high) {
  return {{_mm256_blend_epi16(low.half[0], high.half[0], 0xaa),
           _mm256_blend_epi16(low.half[1], high.half[1], 0xaa)}};
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
// Stores a 16-bit number for each byte of the lanes: its low bits from `low`, its high ones from
// `high`.
inline void store_pairs(std::uint16_t (&numbers)[panel_rows][4], I32x16 low, I32x16 high) {
  const auto store_eight =
      [](std::uint16_t(*of)[4], __m256i bytes, __m256i above) __attribute__((always_inline)) {
    const __m256i rows01 = _mm256_unpacklo_epi8(bytes, above);  // and 4, 5
    const __m256i rows23 = _mm256_unpackhi_epi8(bytes, above);  // and 6, 7
    const auto store_two = [&](int row, __m128i two) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(of[row]), two);
    };
    store_two(0, _mm256_castsi256_si128(rows01));
    store_two(2, _mm256_castsi256_si128(rows23));
    store_two(4, _mm256_extracti128_si256(rows01, 1));
    store_two(6, _mm256_extracti128_si256(rows23, 1));
  };
  store_eight(numbers, low.half[0], high.half[0]);
  store_eight(numbers + 8, low.half[1], high.half[1]);
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
