// Sixteen lanes of NEON for kernels/matmul_formats.h, and the products of unpacked panels, which
// the tiers for aarch64 share: four 128-bit registers hold one 32-bit value for each of the 16 rows
// of a panel. Included by the file of each of these tiers.
#pragma once

#include <arm_neon.h>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 1;
#define SLUICE_MULTIPLIES_INTEGERS
#define SLUICE_LOOKS_UP_ENTRIES

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_driver.h"

namespace sluice::kernels {
namespace {

// Weights of all formats are multiplied as signed bytes.
constexpr bool high_bits_in_place = false;
constexpr int float_sums = 1;  // in four parts, of four registers each
constexpr bool unsigned_bytes = false, keeps_signs = true;

constexpr int registers = 4;  // of a value of sixteen lanes

// Register i has rows 4 i to 4 i + 3.
struct I32x16 {
  uint32x4_t v[registers];
};
struct F32x16 {
  float32x4_t v[registers];
};
struct RowDwords {
  I32x16 dword[4];
};

// A value whose registers are f(0) to f(3), which have constant indices once this is inlined.
template <typename F>
[[gnu::always_inline]] inline I32x16 integers(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <typename F>
[[gnu::always_inline]] inline F32x16 floats(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

inline uint8x16_t bytes_of(uint32x4_t x) {
  return vreinterpretq_u8_u32(x);
}
inline uint32x4_t words_of(uint8x16_t x) {
  return vreinterpretq_u32_u8(x);
}
inline int8x16_t signed_bytes_of(uint32x4_t x) {
  return vreinterpretq_s8_u32(x);
}
inline uint16x8_t halves_of(uint32x4_t x) {
  return vreinterpretq_u16_u32(x);
}
inline uint32x4_t load_128(const void* p) {
  return words_of(vld1q_u8(static_cast<const std::uint8_t*>(p)));
}

struct TwoRegisters {
  uint32x4_t v[2];
};

// 32 bytes by one instruction. GCC would find it where two loads follow each other, and they seldom
// do once instructions are put in order.
[[gnu::always_inline]] inline TwoRegisters load_256(const void* p) {
#ifdef __clang__
  return {{load_128(p), load_128(static_cast<const std::uint8_t*>(p) + 16)}};
#else
  const auto* from = static_cast<const uint8x16_t*>(p);  // bytes alias whatever was stored
  TwoRegisters x;
  __asm__("ldp %q0, %q1, %2" : "=w"(x.v[0]), "=w"(x.v[1]) : "Ump"(from[0]), "m"(from[1]));
  return x;
#endif
}

// A pointer that the compiler takes for the base of what lies behind it. It would make the offset
// of each load from an earlier base, and few of them fit into an instruction.
template <typename T>
[[gnu::always_inline]] inline T* base(T* p) {
  __asm__("" : "+r"(p));
  return p;
}

inline RowDwords load_dwords(FileRows& rows, std::size_t offset) {
  const std::byte* p = rows.block + offset;
  const std::size_t row_bytes = rows.row_bytes;
  read_ahead(rows, 16 * panel_rows);
  RowDwords out;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < registers; ++i) {
    const std::byte* q = p + 4 * i * row_bytes;
    const uint32x4_t r0 = load_128(q), r1 = load_128(q + row_bytes);
    const uint32x4_t r2 = load_128(q + 2 * row_bytes), r3 = load_128(q + 3 * row_bytes);
    const auto low = [](uint32x4_t a, uint32x4_t b) {
      return vreinterpretq_u64_u32(vtrn1q_u32(a, b));
    };
    const auto high = [](uint32x4_t a, uint32x4_t b) {
      return vreinterpretq_u64_u32(vtrn2q_u32(a, b));
    };
    const uint64x2_t even01 = low(r0, r1), even23 = low(r2, r3);
    const uint64x2_t odd01 = high(r0, r1), odd23 = high(r2, r3);
    out.dword[0].v[i] = vreinterpretq_u32_u64(vzip1q_u64(even01, even23));
    out.dword[1].v[i] = vreinterpretq_u32_u64(vzip1q_u64(odd01, odd23));
    out.dword[2].v[i] = vreinterpretq_u32_u64(vzip2q_u64(even01, even23));
    out.dword[3].v[i] = vreinterpretq_u32_u64(vzip2q_u64(odd01, odd23));
  }
  return out;
}

inline I32x16 load_words(const void* p) {
  const TwoRegisters low = load_256(p), high = load_256(static_cast<const std::byte*>(p) + 32);
  return {{low.v[0], low.v[1], high.v[0], high.v[1]}};
}

inline I32x16 load_bytes(const std::byte* p) {
  const uint8x16_t x = bytes_of(load_128(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_high_u8(x);
  return {{vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
           vmovl_high_u16(high)}};
}

inline I32x16 byte_table(const std::uint8_t* p) {
  const uint32x4_t table = load_128(p);
  return {{table, table, table, table}};
}
inline I32x16 look_up(I32x16 table, I32x16 x) {
  return integers(
      [&](int i) { return words_of(vqtbl1q_u8(bytes_of(table.v[i]), bytes_of(x.v[i]))); });
}

// Byte i of every lane becomes its byte number (pattern >> 8 i) & 3.
template <int pattern>
inline I32x16 shuffle_bytes(I32x16 x) {
  constexpr std::uint32_t lane[4] = {pattern, pattern + 0x04040404, pattern + 0x08080808,
                                     pattern + 0x0c0c0c0c};
  const uint8x16_t order = bytes_of(vld1q_u32(lane));
  return integers([&](int i) { return words_of(vqtbl1q_u8(bytes_of(x.v[i]), order)); });
}

using ByteMask = I32x16;  // bytes of 0 or 255

inline ByteMask has_bits(I32x16 x, int pattern) {
  const uint8x16_t bits = bytes_of(vdupq_n_u32(static_cast<std::uint32_t>(pattern)));
  return integers([&](int i) { return words_of(vtstq_u8(bytes_of(x.v[i]), bits)); });
}
inline I32x16 choose(ByteMask mask, I32x16 a, I32x16 b) {
  return integers([&](int i) { return vbslq_u32(mask.v[i], a.v[i], b.v[i]); });
}
// The bytes of x, negative where the mask has a byte.
inline I32x16 negate_bytes(I32x16 x, ByteMask mask) {
  return integers([&](int i) {
    const uint8x16_t m = bytes_of(mask.v[i]);
    return words_of(vsubq_u8(veorq_u8(bytes_of(x.v[i]), m), m));
  });
}

struct RowOctets {
  I32x16 first, last;
};
template <int nth, std::size_t entries, typename Number, std::size_t of_row>
[[gnu::always_inline]] inline RowOctets look_up_octets(
    const std::uint64_t (&table)[entries], const Number (&numbers)[panel_rows][of_row]) {
  RowOctets out;
#pragma GCC unroll 4
  for (int i = 0; i < registers; ++i) {
    const auto* of = numbers + 4 * i;
    const uint64x2_t a{table[of[0][nth]], table[of[1][nth]]};
    const uint64x2_t b{table[of[2][nth]], table[of[3][nth]]};
    out.first.v[i] = vuzp1q_u32(vreinterpretq_u32_u64(a), vreinterpretq_u32_u64(b));
    out.last.v[i] = vuzp2q_u32(vreinterpretq_u32_u64(a), vreinterpretq_u32_u64(b));
  }
  return out;
}
template <int nth, std::size_t entries, typename Number>
[[gnu::always_inline]] inline I32x16 look_up_quads(const std::uint32_t (&table)[entries],
                                                   const Number (&numbers)[panel_rows][4]) {
  return integers([&](int i) {
    const auto* of = numbers + 4 * i;
    return uint32x4_t{table[of[0][nth]], table[of[1][nth]], table[of[2][nth]], table[of[3][nth]]};
  });
}

inline I32x16 add_bytes(I32x16 a, I32x16 b) {
  return integers([&](int i) { return words_of(vaddq_u8(bytes_of(a.v[i]), bytes_of(b.v[i]))); });
}
inline I32x16 thirds(I32x16 x) {
  return integers([&](int i) {
    const uint8x16_t bytes = bytes_of(x.v[i]);
    const uint8x16_t ones = vcgeq_u8(bytes, vdupq_n_u8(86)),
                     more = vcgeq_u8(bytes, vdupq_n_u8(171));
    return words_of(vsubq_u8(vdupq_n_u8(0), vaddq_u8(ones, more)));  // a mask is -1
  });
}

inline I32x16 bits_and(I32x16 a, I32x16 b) {
  return integers([&](int i) { return vandq_u32(a.v[i], b.v[i]); });
}
inline I32x16 bits_or(I32x16 a, I32x16 b) {
  return integers([&](int i) { return vorrq_u32(a.v[i], b.v[i]); });
}
inline I32x16 bits_xor(I32x16 a, I32x16 b) {
  return integers([&](int i) { return veorq_u32(a.v[i], b.v[i]); });
}
template <int n>
inline I32x16 left_16(I32x16 x) {
  return integers([&](int i) { return vreinterpretq_u32_u16(vshlq_n_u16(halves_of(x.v[i]), n)); });
}
template <int n>
inline I32x16 right_16(I32x16 x) {
  return integers([&](int i) { return vreinterpretq_u32_u16(vshrq_n_u16(halves_of(x.v[i]), n)); });
}
// The shifts of vectors that compilers have: they become instructions with the number in them.
inline I32x16 left_32(I32x16 x, int n) {
  return integers([&](int i) { return x.v[i] << n; });
}
inline I32x16 right_32(I32x16 x, int n) {
  return integers([&](int i) { return x.v[i] >> n; });
}
inline I32x16 right_signed_32(I32x16 x, int n) {
  return integers([&](int i) { return vreinterpretq_u32_s32(vreinterpretq_s32_u32(x.v[i]) >> n); });
}
inline I32x16 each_dword(int v) {
  const uint32x4_t x = vdupq_n_u32(static_cast<std::uint32_t>(v));
  return {{x, x, x, x}};
}
inline I32x16 each_byte(int v) {
  const uint32x4_t x = words_of(vdupq_n_u8(static_cast<std::uint8_t>(v)));
  return {{x, x, x, x}};
}
inline std::uint32_t word_at(const void* p) {
  std::uint32_t four;
  std::memcpy(&four, p, sizeof four);
  return four;
}
inline I32x16 each_word_at(const void* p) {
  const uint32x4_t x = vdupq_n_u32(word_at(p));
  return {{x, x, x, x}};
}
inline F32x16 each(float v) {
  const float32x4_t x = vdupq_n_f32(v);
  return {{x, x, x, x}};
}
inline F32x16 multiply(F32x16 a, F32x16 b) {
  return floats([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline float32x4_t float_of(uint32x4_t x) {
  return vcvtq_f32_s32(vreinterpretq_s32_u32(x));
}
inline F32x16 to_float(I32x16 x) {
  return floats([&](int i) { return float_of(x.v[i]); });
}
inline F32x16 as_floats(I32x16 x) {
  return floats([&](int i) { return vreinterpretq_f32_u32(x.v[i]); });
}
inline I32x16 to_integer(F32x16 x) {
  return integers([&](int i) { return vreinterpretq_u32_s32(vcvtq_s32_f32(x.v[i])); });
}
inline I32x16 add(I32x16 a, I32x16 b) {
  return integers([&](int i) { return vaddq_u32(a.v[i], b.v[i]); });
}
inline I32x16 subtract(I32x16 a, I32x16 b) {
  return integers([&](int i) { return vsubq_u32(a.v[i], b.v[i]); });
}
inline I32x16 multiply_add(I32x16 a, I32x16 b, I32x16 c) {
  return integers([&](int i) { return vmlaq_u32(c.v[i], a.v[i], b.v[i]); });
}
inline F32x16 add(F32x16 a, F32x16 b) {
  return floats([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 c) {
  return floats([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline F32x16 subtract_product(F32x16 a, F32x16 b, F32x16 c) {  // c - a b
  return floats([&](int i) { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline uint32x4_t add_pair_products(uint32x4_t a, uint32x4_t b, uint32x4_t c) {
  const int16x8_t x = vreinterpretq_s16_u32(a), y = vreinterpretq_s16_u32(b);
  const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
  return vaddq_u32(vreinterpretq_u32_s32(vpaddq_s32(low, vmull_high_s16(x, y))), c);
}
inline I32x16 add_pair_products(I32x16 a, I32x16 b, I32x16 c) {
  return integers([&](int i) { return add_pair_products(a.v[i], b.v[i], c.v[i]); });
}
inline F32x16 low_halves(I32x16 x) {
  return floats([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(x.v[i]))); });
}
inline void store(void* p, I32x16 x) {
  auto* q = static_cast<std::uint8_t*>(p);
  for (int i = 0; i < registers; ++i) vst1q_u8(q + 16 * i, bytes_of(x.v[i]));
}
// Stores a 16-bit number for each byte of the lanes: its low bits from `low`, its high ones from
// `high`.
inline void store_pairs(std::uint16_t (&numbers)[panel_rows][4], I32x16 low, I32x16 high) {
#pragma GCC unroll 4
  for (int i = 0; i < registers; ++i) {
    const uint8x16_t x = bytes_of(low.v[i]), y = bytes_of(high.v[i]);
    vst1q_u16(numbers[4 * i], vreinterpretq_u16_u8(vzip1q_u8(x, y)));
    vst1q_u16(numbers[4 * i + 2], vreinterpretq_u16_u8(vzip2q_u8(x, y)));
  }
}
inline void store(void* p, F32x16 x) {
  auto* q = static_cast<float*>(p);
  for (int i = 0; i < registers; ++i) vst1q_f32(q + 4 * i, x.v[i]);
}
inline F32x16 load(const float* p) {
  return as_floats(load_words(p));
}

// Where to read sixteen elements. If only `count` are at p, they are copied to `copy`, so that no
// read goes beyond them.
template <typename Element>
inline const Element* sixteen(const std::byte* p, std::size_t count, Element (&copy)[16]) {
  if (count == 16) return reinterpret_cast<const Element*>(p);
  std::memcpy(copy, p, count * sizeof(Element));
  return copy;
}
inline F32x16 load_floats(const std::byte* p, std::size_t count) {
  float copy[16] = {};
  return load(sixteen(p, count, copy));
}
inline F32x16 load_halves(const std::byte* p, std::size_t count) {
  std::uint16_t copy[16] = {};
  const std::uint16_t* q = sixteen(p, count, copy);
  const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(q));
  const float16x8_t high = vreinterpretq_f16_u16(vld1q_u16(q + 8));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
           vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)}};
}
inline F32x16 load_bfloats(const std::byte* p, std::size_t count) {
  std::uint16_t copy[16] = {};
  const std::uint16_t* q = sixteen(p, count, copy);
  return floats([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(q + 4 * i), 16)); });
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t few_columns = 4, few_sums = 16;

// Weights of a panel are signed: with several columns that takes less than to take the offset off
// their products.
template <typename Format>
inline I32x16 without_offset(I32x16 q) {
  if constexpr (!Format::has_offset)
    return q;
  else
    return add_bytes(q, each_byte(-Format::offset));
}

// Sums of products, which multiply_32() adds to: for each column, or pair of them, a register for
// each four rows, or pair of them.
template <int columns, int registers>
struct ProductSums {
  [[gnu::always_inline]] inline void clear() {
#pragma GCC unroll 4
    for (auto& of_column : sum) {
#pragma GCC unroll 8
      for (int32x4_t& of_rows : of_column) of_rows = vdupq_n_s32(0);
    }
  }

  int32x4_t sum[columns][registers];
};

template <typename Format, typename Panel>
struct SignedSink {
  Panel& panel;
  std::size_t first_group = 0;

  [[gnu::always_inline]] inline void operator()(int, std::size_t group, I32x16 q) const {
    store(panel.q[first_group + group], without_offset<Format>(q));
  }
};

}  // namespace
}  // namespace sluice::kernels
