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

#ifdef SLUICE_LOOKS_UP_BYTES

// The digits in base 3 of all bytes: the first four in two bits each, and the last one.
struct DigitTables {
  constexpr DigitTables() {
    for (int byte = 0; byte < 256; ++byte) {
      int digits[5] = {};
      for (int t = 0; t < 5; ++t) digits[t] = (byte * powers_of_3[t] & 255) * 3 >> 8;
      four[byte] =
          static_cast<std::uint8_t>(digits[0] | digits[1] << 2 | digits[2] << 4 | digits[3] << 6);
      last[byte] = static_cast<std::uint8_t>(digits[4]);
    }
  }
  alignas(64) std::uint8_t four[256] = {}, last[256] = {};
};
inline constexpr DigitTables digit_tables;

// The digits of the bytes of a word.
class BaseThree {
 public:
  [[gnu::always_inline]] explicit BaseThree(I32x16 x) : x_(x) {}

  // Digit t of every byte, moved to bit `at`.
  template <int t, int at>
  [[gnu::always_inline]] inline I32x16 digit() const {
    if constexpr (t < 4) {
      return move_bits<2, 2 * t, at>(look_up_bytes(digit_tables.four, x_));
    } else {
      return left_16<at>(look_up_bytes(digit_tables.last, x_));
    }
  }

 private:
  I32x16 x_;
};

#else

class BaseThree {
 public:
  [[gnu::always_inline]] explicit BaseThree(I32x16 x) : x_(x) {}

  // Digit t of every byte, moved to bit `at`.
  template <int t, int at>
  [[gnu::always_inline]] inline I32x16 digit() const {
    return left_16<at>(thirds(times_power<t>(x_)));
  }

 private:
  template <int power>
  [[gnu::always_inline]] static inline I32x16 times_power(I32x16 x) {
    if constexpr (power == 0) {
      return x;
    } else {
      const I32x16 less = times_power<power - 1>(x);
      return add_bytes(less, add_bytes(less, less));
    }
  }

  I32x16 x_;
};

#endif

// Weights that are unpacked as eight times their values: their offset is that of Q4_0.
template <typename Format>
struct EighthsPanels {
  static constexpr int sub_block = 32, offset = 8;
  static constexpr bool has_offset = true, is_for_tiles = false;
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
