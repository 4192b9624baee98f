// Sixteen float lanes in plain C++: the definition that lanes_avx2.h and lanes_avx512.h reproduce
// bit for bit. Kernels are written once against these operations (vector_ops_impl.h and others)
// and compiled once per tier.
//
// Everything is in an anonymous namespace, and no inline function from elsewhere is used (not even
// std::min or std::fma): otherwise the linker might keep one tier's copy for all tiers.
//
// Rounding is to nearest even, and subnormals are kept. Tiers agree on which lanes are NaN, but not
// on the payload of a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>  // the C functions, which are not inline

#include "kernels/dequantise.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t lanes = 16;

// The most accumulators that a tile may keep in registers, and the most rows of queries.
constexpr int accumulators_max = 4;
constexpr int tile_heads_max = 2;

// Rows of queries in a tile of integers, and vectors of sums for each of them.
constexpr int integer_tile_heads = 2;
constexpr int integer_tile_vectors = 1;

struct F32x16 {
  float lane[lanes];
};

struct I32x16 {
  std::int32_t lane[lanes];
};

// Begins to load the cache line of p, which need not be valid memory: into the first-level cache,
// or only into the second.
inline void prefetch(const void* /*p*/) {}
inline void prefetch_far(const void* /*p*/) {}

inline F32x16 broadcast(float x) {
  F32x16 r;
  for (float& lane : r.lane) lane = x;
  return r;
}

inline I32x16 broadcast_int(std::int32_t x) {
  I32x16 r;
  for (std::int32_t& lane : r.lane) lane = x;
  return r;
}

// Loads `count` (1..16) floats from p; the remaining lanes are `rest`.
inline F32x16 load(const float* p, std::size_t count, float rest = 0) {
  F32x16 r;
  for (std::size_t i = 0; i < lanes; ++i) r.lane[i] = i < count ? p[i] : rest;
  return r;
}

// The same from half floats; the remaining lanes are 0.
inline F32x16 load(const std::uint16_t* p, std::size_t count) {
  F32x16 r;
  for (std::size_t i = 0; i < lanes; ++i) r.lane[i] = i < count ? half_to_float(p[i]) : 0;
  return r;
}

inline void store(F32x16 a, float* p, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) p[i] = a.lane[i];
}

// Stores as half floats, rounded to nearest even.
inline void store(F32x16 a, std::uint16_t* p, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) p[i] = float_to_half(a.lane[i]);
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] += b.lane[i];
  return a;
}

inline F32x16 operator-(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] -= b.lane[i];
  return a;
}

inline F32x16 operator*(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] *= b.lane[i];
  return a;
}

inline F32x16 operator/(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] /= b.lane[i];
  return a;
}

// a * b + c, rounded once.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] = ::fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return a;
}

// c - a * b, rounded once.
inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] = ::fmaf(-a.lane[i], b.lane[i], c.lane[i]);
  return a;
}

// a > b ? a : b; so b if either is NaN.
inline F32x16 max(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}

// a < b ? a : b; so b if either is NaN.
inline F32x16 min(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}

inline F32x16 abs(F32x16 a) {
  for (float& lane : a.lane) lane = ::fabsf(lane);
  return a;
}

// a < b ? x : y.
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  for (std::size_t i = 0; i < lanes; ++i) x.lane[i] = a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i];
  return x;
}

// The lanes [begin, end) of a; `rest` in the others.
inline F32x16 keep(F32x16 a, std::size_t begin, std::size_t end, float rest) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] = i >= begin && i < end ? a.lane[i] : rest;
  return a;
}

// a * 2^n, rounded once; n holds integers in -250..250, or NaN where a is NaN.
inline F32x16 times_power_of_two(F32x16 a, F32x16 n) {
  for (std::size_t i = 0; i < lanes; ++i) {
    const int exponent = n.lane[i] == n.lane[i] ? static_cast<int>(n.lane[i]) : 0;
    a.lane[i] = ::ldexpf(a.lane[i], exponent);
  }
  return a;
}

// The sum in a fixed tree: lanes 8 apart, then 4, 2 and 1.
inline float sum(F32x16 a) {
  for (std::size_t step = lanes / 2; step > 0; step /= 2) {
    for (std::size_t i = 0; i < step; ++i) a.lane[i] += a.lane[i + step];
  }
  return a.lane[0];
}

// out[i] = sum(a[i]).
inline void sum_four(const F32x16* a, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = sum(a[i]);
}

// The maximum in the tree of `sum`.
inline float largest(F32x16 a) {
  for (std::size_t step = lanes / 2; step > 0; step /= 2) {
    for (std::size_t i = 0; i < step; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + step] ? a.lane[i] : a.lane[i + step];
    }
  }
  return a.lane[0];
}

// The larger of two values without a sign bit, where NaN is larger than infinity.
inline float larger_or_nan(float a, float b) {
  return a > b || a != a ? a : b;
}

inline F32x16 max_or_nan(F32x16 a, F32x16 b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] = larger_or_nan(a.lane[i], b.lane[i]);
  return a;
}

inline float largest_or_nan(F32x16 a) {
  float r = a.lane[0];
  for (const float lane : a.lane) r = larger_or_nan(lane, r);
  return r;
}

// The nearest integer, the even one if two are equally near. a must be in the range of int32, or
// NaN, for which the tiers give different integers.
inline I32x16 round_to_int(F32x16 a) {
  I32x16 r;
  for (std::size_t i = 0; i < lanes; ++i) {
    r.lane[i] = a.lane[i] == a.lane[i] ? static_cast<std::int32_t>(::rintf(a.lane[i])) : 0;
  }
  return r;
}

inline F32x16 to_float(I32x16 a) {
  F32x16 r;
  for (std::size_t i = 0; i < lanes; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}

// table[n], where n is the lowest four bits of a lane.
inline F32x16 lookup(const float (&table)[lanes], F32x16 a) {
  for (float& lane : a.lane) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &lane, sizeof bits);
    lane = table[bits % lanes];
  }
  return a;
}

inline std::int32_t sum(I32x16 a) {
  std::int32_t r = 0;
  for (const std::int32_t lane : a.lane) r += lane;
  return r;
}

// Stores sixteen bytes; every lane must be in -128..127.
inline void store(I32x16 a, std::int8_t* p) {
  for (std::size_t i = 0; i < lanes; ++i) p[i] = static_cast<std::int8_t>(a.lane[i]);
}

// Transposes four blocks of 4 x 4 bytes and stores them `stride` bytes apart.
inline void store_transposed(const std::int8_t* bytes, std::int8_t* p, std::size_t stride) {
  for (std::size_t block = 0; block < 4; ++block) {
    for (std::size_t i = 0; i < 16; ++i) {
      p[block * stride + i] = bytes[block * 16 + i % 4 * 4 + i / 4];
    }
  }
}

// Stores integers in an array of floats; they must be converted before they are read as floats.
inline void store_bits(I32x16 a, float* p, std::size_t count) {
  __builtin_memcpy(p, a.lane, count * sizeof(float));
}

// Loads `count` (1..16) such integers; the remaining lanes are 0.
inline I32x16 load_bits(const float* p, std::size_t count) {
  I32x16 r = {};
  __builtin_memcpy(r.lane, p, count * sizeof(float));
  return r;
}

// Stores sixteen words as add_part() reads them; they may lie in an array of floats.
inline void store_words(I32x16 words, std::int16_t* p) {
  constexpr std::size_t order[] = {0, 2, 1, 3};
  for (std::size_t i = 0; i < lanes; ++i) {
    const auto word = static_cast<std::int16_t>(words.lane[i]);
    __builtin_memcpy(p + i / 4 * 4 + order[i % 4], &word, sizeof(word));
  }
}

// Two words in each lane: its even bytes, or its odd ones.
inline I32x16 bytes_from(I32x16 a, std::size_t first) {
  for (std::int32_t& lane : a.lane) {
    std::int8_t bytes[4];
    __builtin_memcpy(bytes, &lane, sizeof(lane));
    const std::int16_t words[] = {bytes[first], bytes[first + 2]};
    __builtin_memcpy(&lane, words, sizeof(lane));
  }
  return a;
}
inline I32x16 even_bytes(I32x16 a) {
  return bytes_from(a, 0);
}
inline I32x16 odd_bytes(I32x16 a) {
  return bytes_from(a, 1);
}

// Two words, in all lanes. They may lie in an array of floats.
inline I32x16 broadcast_pair(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return broadcast_int(pair);
}

// sum += the products of two words in each lane, exactly.
inline void add_products(I32x16& sum, const I32x16& a, const I32x16& b) {
  for (std::size_t i = 0; i < lanes; ++i) {
    std::int16_t x[2], y[2];
    __builtin_memcpy(x, &a.lane[i], sizeof(x));
    __builtin_memcpy(y, &b.lane[i], sizeof(y));
    sum.lane[i] += x[0] * y[0] + x[1] * y[1];
  }
}

inline I32x16 operator+(I32x16 a, const I32x16& b) {
  for (std::size_t i = 0; i < lanes; ++i) a.lane[i] += b.lane[i];
  return a;
}

// Sixteen pairs that are adjacent in memory, taken apart.
struct Pairs {
  F32x16 first, second;
};

inline Pairs load_pairs(const float* p) {
  Pairs r;
  for (std::size_t i = 0; i < lanes; ++i) {
    r.first.lane[i] = p[2 * i];
    r.second.lane[i] = p[2 * i + 1];
  }
  return r;
}

inline void store_pairs(const Pairs& a, float* p) {
  for (std::size_t i = 0; i < lanes; ++i) {
    p[2 * i] = a.first.lane[i];
    p[2 * i + 1] = a.second.lane[i];
  }
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/lanes_words.h"
