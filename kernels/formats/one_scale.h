// What the formats share whose weights are ternary or binary and have one scale for a block.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {
namespace {

// Digits in base 3, five in a byte: a byte is a fraction of 256, and its digits are the weights,
// the first one in front.
inline constexpr int powers_of_3[5] = {1, 3, 9, 27, 81};

// The first `digits` digits of `count` bytes, less 1: first those in front of all bytes, and so on.
inline void unpack_digits(const std::uint8_t* bytes, int count, int digits, int* q) {
  for (int t = 0; t < digits; ++t) {
    for (int j = 0; j < count; ++j) {
      q[t * count + j] = ((bytes[j] * powers_of_3[t] & 255) * 3 >> 8) - 1;
    }
  }
}

#ifdef SLUICE_HAS_PANELS

// One scale for all weights of a block.
struct OneScale {
  template <typename Format, typename Rows>
  static OneScale read(Rows& rows) {
    return {half<Format>(rows)};
  }
  static I32x16 scale(int) { return each_dword(1); }

  F32x16 d;
};

// Digit t of every byte.
template <int t>
[[gnu::always_inline]] inline I32x16 base_3_digits(I32x16 x) {
  const auto of_words = [](I32x16 bytes) {
    const I32x16 fraction = bits_and(times_16(bytes, powers_of_3[t]), each_dword(0x00ff00ff));
    return right_16<8>(times_16(fraction, 3));
  };
  const I32x16 even = of_words(bits_and(x, each_dword(0x00ff00ff)));
  return bits_or(even, left_16<8>(of_words(right_16<8>(x))));
}

// Weights that are unpacked as eight times their values: their offset is that of Q4_0.
template <typename Format>
struct EighthsPanels {
  static constexpr int sub_block = 32, offset = 8;
  static constexpr bool has_offset = true, is_for_tiles = false, unpacks_first = true;
  static const std::int32_t* offsets(const BlockA32& a) { return a.minus_8_sums; }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {multiply(half<Format>(rows), each(0.125f)), each(0)};
  }
};

#else

template <typename Format>
struct EighthsPanels {};

#endif

#ifdef SLUICE_HAS_ENCODERS

// The inverse of unpack_digits().
inline void pack_digits(const float* x, float d, int count, int digits, std::uint8_t* bytes) {
  for (int j = 0; j < count; ++j) {
    int number = 0;
    for (int t = 0; t < digits; ++t) {
      number += ternary_code(x[t * count + j], d) * powers_of_3[4 - t];
    }
    bytes[j] = static_cast<std::uint8_t>((number * 256 + 242) / 243);
  }
}

#endif

}  // namespace
}  // namespace sluice::kernels
