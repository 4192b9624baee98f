// Sixteen float lanes in four NEON registers (Armv8.0). See lanes_scalar.h for what each operation
// means.
#pragma once

#include <arm_neon.h>
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr std::size_t lanes = 16;
constexpr int registers = 4;         // of a value of sixteen lanes
constexpr int accumulators_max = 4;  // of four registers each: half of the 32
constexpr int tile_heads_max = 2;
#ifdef __ARM_FEATURE_DOTPROD
constexpr int integer_tile_heads = 2;
#else
constexpr int integer_tile_heads = 1;  // whose sums are half of the registers
#endif
constexpr int integer_tile_vectors = 1;

struct F32x16 {
  float32x4_t v[registers];
};

struct I32x16 {
  int32x4_t v[registers];
};

// A value whose registers are f(0) to f(3), which have constant indices once this is inlined.
template <typename Value, typename F>
[[gnu::always_inline]] inline Value of_registers(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

// Assembly, because GCC drops calls of functions that have no other effect.
inline void prefetch(const void* p) {
  __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*static_cast<const char*>(p)));
}
inline void prefetch_far(const void* p) {
  __asm__ volatile("prfm pldl2keep, %0" : : "Q"(*static_cast<const char*>(p)));
}

inline F32x16 broadcast(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}

inline I32x16 broadcast_int(std::int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {{v, v, v, v}};
}

inline F32x16 load_all(const float* p) {
  return of_registers<F32x16>([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline void store_all(F32x16 a, float* p) {
  for (int i = 0; i < registers; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}

// Fewer than sixteen elements go through a copy, so that nothing beyond them is touched.
inline F32x16 load_some(const float* p, std::size_t count, float rest) {
  float copy[lanes];
  store_all(broadcast(rest), copy);
  __builtin_memcpy(copy, p, count * sizeof(float));
  return load_all(copy);
}

[[gnu::always_inline]] inline F32x16 load(const float* p, std::size_t count, float rest = 0) {
  return count == lanes ? load_all(p) : load_some(p, count, rest);
}

inline F32x16 load_all(const std::uint16_t* p) {
  return of_registers<F32x16>(
      [&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}

inline F32x16 load(const std::uint16_t* p, std::size_t count) {
  if (count == lanes) return load_all(p);
  std::uint16_t copy[lanes] = {};
  __builtin_memcpy(copy, p, count * sizeof(std::uint16_t));
  return load_all(copy);
}

inline void store_some(F32x16 a, float* p, std::size_t count) {
  float copy[lanes];
  store_all(a, copy);
  __builtin_memcpy(p, copy, count * sizeof(float));
}

[[gnu::always_inline]] inline void store(F32x16 a, float* p, std::size_t count) {
  return count == lanes ? store_all(a, p) : store_some(a, p, count);
}

inline void store(F32x16 a, std::uint16_t* p, std::size_t count) {
  std::uint16_t copy[lanes];
  std::uint16_t* target = count == lanes ? p : copy;
  for (int i = 0; i < registers; ++i) {
    vst1_u16(target + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  }
  if (target == copy) __builtin_memcpy(p, copy, count * sizeof(std::uint16_t));
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return of_registers<F32x16>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}

inline F32x16 operator-(F32x16 a, F32x16 b) {
  return of_registers<F32x16>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}

inline F32x16 operator*(F32x16 a, F32x16 b) {
  return of_registers<F32x16>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}

inline F32x16 operator/(F32x16 a, F32x16 b) {
  return of_registers<F32x16>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}

inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return of_registers<F32x16>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}

inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) {
  return of_registers<F32x16>([&](int i) { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); });
}

// Not vmaxq_f32, which gives NaN if either is one.
inline float32x4_t larger(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}

inline F32x16 max(F32x16 a, F32x16 b) {
  return of_registers<F32x16>([&](int i) { return larger(a.v[i], b.v[i]); });
}

inline F32x16 min(F32x16 a, F32x16 b) {
  return of_registers<F32x16>(
      [&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}

inline F32x16 abs(F32x16 a) {
  return of_registers<F32x16>([&](int i) { return vabsq_f32(a.v[i]); });
}

inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return of_registers<F32x16>(
      [&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i]); });
}

// The numbers of the lanes of register i.
inline uint32x4_t numbers_of_lanes(int i) {
  constexpr std::uint32_t first[4] = {0, 1, 2, 3};
  return vaddq_u32(vld1q_u32(first), vdupq_n_u32(static_cast<std::uint32_t>(4 * i)));
}

inline F32x16 keep(F32x16 a, std::size_t begin, std::size_t end, float rest) {
  const uint32x4_t from = vdupq_n_u32(static_cast<std::uint32_t>(begin));
  const uint32x4_t to = vdupq_n_u32(static_cast<std::uint32_t>(end));
  return of_registers<F32x16>([&](int i) {
    const uint32x4_t n = numbers_of_lanes(i);
    return vbslq_f32(vandq_u32(vcgeq_u32(n, from), vcltq_u32(n, to)), a.v[i], vdupq_n_f32(rest));
  });
}

// 2^n for n in -126..127.
inline float32x4_t power_of_two(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

// In two steps, because 2^n need not be a float. The first is exact, so only the second rounds.
inline F32x16 times_power_of_two(F32x16 a, F32x16 n) {
  return of_registers<F32x16>([&](int i) {
    const int32x4_t exponent = vcvtnq_s32_f32(n.v[i]);
    const int32x4_t part = vshrq_n_s32(exponent, 1);
    return vmulq_f32(vmulq_f32(a.v[i], power_of_two(part)),
                     power_of_two(vsubq_s32(exponent, part)));
  });
}

// The sums of lanes 8 and then 4 apart.
inline float32x4_t sums_of_four(F32x16 a) {
  return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
}

inline float sum(F32x16 a) {
  const float32x4_t four = sums_of_four(a);
  return vaddv_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

inline void sum_four(const F32x16* a, float* out) {
  const auto sums_of_two = [](float32x4_t x, float32x4_t y) {  // of x, then of y
    const float64x2_t low = vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y));
    const float64x2_t high = vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y));
    return vaddq_f32(vreinterpretq_f32_f64(low), vreinterpretq_f32_f64(high));
  };
  vst1q_f32(out, vpaddq_f32(sums_of_two(sums_of_four(a[0]), sums_of_four(a[1])),
                            sums_of_two(sums_of_four(a[2]), sums_of_four(a[3]))));
}

inline float largest(F32x16 a) {
  const float32x4_t four = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
  const float32x4_t two = larger(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(larger(two, vextq_f32(two, two, 1)), 0);
}

// Without a sign bit, floats are in the order of their bits, with NaN above infinity.
inline F32x16 max_or_nan(F32x16 a, F32x16 b) {
  return of_registers<F32x16>([&](int i) {
    return vreinterpretq_f32_u32(
        vmaxq_u32(vreinterpretq_u32_f32(a.v[i]), vreinterpretq_u32_f32(b.v[i])));
  });
}

inline float largest_or_nan(F32x16 a) {
  const auto larger_bits = [&](int i, int j) {
    return vmaxq_u32(vreinterpretq_u32_f32(a.v[i]), vreinterpretq_u32_f32(a.v[j]));
  };
  const std::uint32_t bits = vmaxvq_u32(vmaxq_u32(larger_bits(0, 1), larger_bits(2, 3)));
  float r;
  __builtin_memcpy(&r, &bits, sizeof r);
  return r;
}

inline I32x16 round_to_int(F32x16 a) {
  return of_registers<I32x16>([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
}

inline F32x16 to_float(I32x16 a) {
  return of_registers<F32x16>([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}

// The table is looked up by bytes: lane n has the bytes 4 n to 4 n + 3 of it.
inline F32x16 lookup(const float (&table)[lanes], F32x16 a) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
  const uint8x16x4_t four = {
      {vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  return of_registers<F32x16>([&](int i) {
    const uint32x4_t n = vandq_u32(vreinterpretq_u32_f32(a.v[i]), vdupq_n_u32(15));
    const uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), n, 0x04040404);
    return vreinterpretq_f32_u8(vqtbl4q_u8(four, vreinterpretq_u8_u32(at)));
  });
}

inline std::int32_t sum(I32x16 a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}

// Lanes 8 i ... 8 i + 7 as words.
inline int16x8_t narrowed(I32x16 a, int i) {
  return vcombine_s16(vmovn_s32(a.v[2 * i]), vmovn_s32(a.v[2 * i + 1]));
}

inline void store(I32x16 a, std::int8_t* p) {
  vst1q_s8(p, vcombine_s8(vmovn_s16(narrowed(a, 0)), vmovn_s16(narrowed(a, 1))));
}

inline void store_transposed(const std::int8_t* bytes, std::int8_t* p, std::size_t stride) {
  constexpr std::uint8_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  for (std::size_t block = 0; block < 4; ++block) {
    vst1q_s8(p + block * stride, vqtbl1q_s8(vld1q_s8(bytes + 16 * block), vld1q_u8(order)));
  }
}

inline void store_bits(I32x16 a, float* p, std::size_t count) {
  store(of_registers<F32x16>([&](int i) { return vreinterpretq_f32_s32(a.v[i]); }), p, count);
}

inline I32x16 load_bits(const float* p, std::size_t count) {
  const F32x16 a = load(p, count);
  return of_registers<I32x16>([&](int i) { return vreinterpretq_s32_f32(a.v[i]); });
}

inline I32x16 operator+(I32x16 a, const I32x16& b) {
  return of_registers<I32x16>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}

struct Pairs {
  F32x16 first, second;
};

inline Pairs load_pairs(const float* p) {
  Pairs r;
  for (int i = 0; i < registers; ++i) {
    const float32x4x2_t four = vld2q_f32(p + 8 * i);
    r.first.v[i] = four.val[0];
    r.second.v[i] = four.val[1];
  }
  return r;
}

inline void store_pairs(const Pairs& a, float* p) {
  for (int i = 0; i < registers; ++i) {
    vst2q_f32(p + 8 * i, float32x4x2_t{{a.first.v[i], a.second.v[i]}});
  }
}

// Products of bytes and words, for attention.
struct ByteGroup {
  int8x16_t v[registers];  // four bytes for each lane
};

// Loads four bytes for each of `count` (1..16) lanes.
inline ByteGroup load_group(const std::int8_t* p, std::size_t count) {
  std::int8_t copy[4 * lanes] = {};
  if (count < lanes) {
    __builtin_memcpy(copy, p, 4 * count);
    p = copy;
  }
  return of_registers<ByteGroup>([&](int i) { return vld1q_s8(p + 16 * i); });
}

// All bytes of a group are multiplied at once.
constexpr int group_parts = 1;
using GroupPart = ByteGroup;

template <int>
inline GroupPart part_of(const ByteGroup& group) {
  return group;
}

#ifdef __ARM_FEATURE_DOTPROD

// By the dot product of Armv8.2: a word is 256 times a signed byte and another one.

// Four upper bytes and four lower ones, in turn.
inline void store_words(I32x16 words, std::int16_t* p) {
  const int16x8_t half = vdupq_n_s16(128);
  int32x4_t upper[2], lower[2];  // of eight words each
  for (int i = 0; i < 2; ++i) {
    const int16x8_t eight = narrowed(words, i);
    const int8x8_t u = vshrn_n_s16(vaddq_s16(eight, half), 8), l = vmovn_s16(eight);
    upper[i] = vreinterpretq_s32_s8(vcombine_s8(u, u));
    lower[i] = vreinterpretq_s32_s8(vcombine_s8(l, l));
    vst1q_s16(p + 8 * i, vreinterpretq_s16_s32(vzip1q_s32(upper[i], lower[i])));
  }
}

struct GroupSums {
  I32x16 upper, lower;
};

inline GroupSums begin_sums(I32x16 start) {
  return {broadcast_int(0), start};
}

template <int>
inline void add_part(GroupSums& sums, const GroupPart& bytes, const std::int16_t* four) {
  const int8x8_t words = vld1_s8(reinterpret_cast<const std::int8_t*>(four));
  for (int i = 0; i < registers; ++i) {
    sums.upper.v[i] = vdotq_lane_s32(sums.upper.v[i], bytes.v[i], words, 0);
    sums.lower.v[i] = vdotq_lane_s32(sums.lower.v[i], bytes.v[i], words, 1);
  }
}

inline I32x16 total(const GroupSums& sums, I32x16) {
  return of_registers<I32x16>(
      [&](int i) { return vaddq_s32(vshlq_n_s32(sums.upper.v[i], 8), sums.lower.v[i]); });
}

#else

inline void store_words(I32x16 words, std::int16_t* p) {
  vst1q_s16(p, narrowed(words, 0));
  vst1q_s16(p + 8, narrowed(words, 1));
}

// A register for each lane, which has the products with each of four words.
struct GroupSums {
  int32x4_t v[lanes];
};

inline GroupSums begin_sums(I32x16) {
  GroupSums sums;
  for (int32x4_t& v : sums.v) v = vdupq_n_s32(0);
  return sums;
}

template <int>
inline void add_part(GroupSums& sums, const GroupPart& bytes, const std::int16_t* four) {
  const int16x4_t once = vld1_s16(four);
  const int16x8_t words = vcombine_s16(once, once);
  for (int i = 0; i < registers; ++i) {
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes.v[i])), high = vmovl_high_s8(bytes.v[i]);
    int32x4_t* const v = sums.v + 4 * i;
    v[0] = vmlal_s16(v[0], vget_low_s16(low), once);
    v[1] = vmlal_high_s16(v[1], low, words);
    v[2] = vmlal_s16(v[2], vget_low_s16(high), once);
    v[3] = vmlal_high_s16(v[3], high, words);
  }
}

inline I32x16 total(const GroupSums& sums, I32x16 start) {
  return of_registers<I32x16>([&](int i) {
    const int32x4_t* const v = sums.v + 4 * i;
    const int32x4_t all = vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
    return vaddq_s32(start.v[i], all);
  });
}

#endif

}  // namespace
}  // namespace sluice::kernels
