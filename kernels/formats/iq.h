// What the formats share that index grids: the numbers in an entry, and signs.
#pragma once

#include "kernels/formats/format.h"
#include "kernels/formats/grids.h"

namespace sluice::kernels {
namespace {

// The number of weight i in an entry of a grid of 8 or of 4 weights.
inline int number_of_8(std::uint16_t entry, int i) {
  return entry >> (4 * (i % 4) + 2 * (i / 4)) & 3;
}
inline int number_of_4(std::uint16_t entry, int i) {
  return entry >> (4 * i) & 15;
}

// Eight signs, bit i for weight i, of which seven are stored: the number of minus signs is even.
inline int with_eighth_sign(int seven) {
  int parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}

inline int negative_if(int value, int is_negative) {
  return is_negative ? -value : value;
}

// The magnitudes of the numbers of the IQ2 grids.
inline constexpr int iq2_values[4] = {8, 25, 43, 0};

// Unpacks 8 weights of IQ2.
inline void unpack_iq2(std::uint16_t entry, int signs, int* q) {
  for (int i = 0; i < 8; ++i) {
    q[i] = negative_if(iq2_values[number_of_8(entry, i)], signs >> i & 1);
  }
}

#ifdef SLUICE_HAS_PANELS

// Where a nibble has the number of a value.
enum class NumberAt { low_bits, high_bits, nibble };

// The bytes that nibbles stand for: `sign` times a value, plus `offset`.
template <int count>
constexpr NibbleTable table_of(const int (&values)[count], NumberAt at, int sign, int offset) {
  std::int8_t bytes[16] = {};
  for (int i = 0; i < 16; ++i) {
    const int number = at == NumberAt::nibble ? i : at == NumberAt::low_bits ? i % 4 : i / 4;
    bytes[i] = static_cast<std::int8_t>(number < count ? sign * values[number] : 0);
  }
  return {bytes, offset};
}

// Moves the four nibbles of the 16-bit entry in a half of every lane to the lane's four bytes.
template <int half>
[[gnu::always_inline]] inline I32x16 spread_nibbles(I32x16 entries) {
  const I32x16 twice = shuffle_bytes < half == 0 ? 0x01010000 : 0x03030202 > (entries);
  return bits_or(bits_and(twice, each_dword(0x000f000f)),
                 bits_and(right_16<4>(twice), each_dword(0x0f000f00)));
}

// Copies byte `byte` of every lane to all of its bytes.
template <int byte>
[[gnu::always_inline]] inline I32x16 repeat_byte(I32x16 x) {
  return shuffle_bytes<byte * 0x01010101>(x);
}

// Adds the eighth sign to the seven of each byte.
[[gnu::always_inline]] inline I32x16 with_eighth_signs(I32x16 sevens) {
  constexpr std::uint8_t odd = 0x80;
  alignas(16) static constexpr std::uint8_t parities[16] = {0,   odd, odd, 0,   odd, 0,   0,   odd,
                                                            odd, 0,   0,   odd, 0,   odd, odd, 0};
  const I32x16 folded = bits_xor(sevens, right_16<4>(sevens));
  return bits_or(sevens, look_up(byte_table(parities), low_nibbles(folded)));
}

// The low seven bits of `x`, the next seven and so on, one in each byte.
[[gnu::always_inline]] inline I32x16 spread_sevens(I32x16 x) {
  return bits_or(
      bits_or(bits_and(x, each_dword(0x7f)), bits_and(left_32(x, 1), each_dword(0x7f00))),
      bits_or(bits_and(left_32(x, 2), each_dword(0x7f0000)),
              bits_and(left_32(x, 3), each_dword(0x7f000000))));
}

// Two indices in the halves of every lane: bytes 0 and 2 of `bytes`, and above these the bits of
// `first` and of `second` that are in the lower and in the upper half of the mask.
template <int mask>
[[gnu::always_inline]] inline I32x16 with_high_bits(I32x16 bytes, I32x16 first, I32x16 second) {
  constexpr int upper = static_cast<int>(mask & 0xffff0000);
  return bits_or(
      bits_and(bytes, each_dword(0x00ff00ff)),
      bits_or(bits_and(first, each_dword(mask & 0xffff)), bits_and(second, each_dword(upper))));
}

// Scales of four bits n that stand for 2 n + 1: the one whose lowest bit is bit `at` of the lanes.
[[gnu::always_inline]] inline I32x16 odd_scale(I32x16 x, int at) {
  const I32x16 doubled = at == 0 ? left_32(x, 1) : right_32(x, at - 1);
  return bits_or(bits_and(doubled, each_dword(30)), each_dword(1));
}

// What the products of `offset` with the activations of sub-block s take off a dot product. With 16
// or 32 weights in a sub-block.
template <int sub_block, int offset>
inline I32x16 offset_product(const BlockA256& a, int s) {
  static_assert(sub_block == 16 || sub_block == 32);
  const int sum = sub_block == 16 ? a.minus_32_sums_of_16[s]
                                  : a.minus_32_sums_of_16[2 * s] + a.minus_32_sums_of_16[2 * s + 1];
  return each_dword(offset % 32 == 0 ? sum * (offset / 32) : sum / (32 / offset));
}

// The bytes of weights of IQ2: `plus` and `minus` are for the first and for the last four of eight.
struct Iq2Tables {
  static constexpr int offset = 64, largest_q = 43 + offset;
  static constexpr NibbleTable plus[2] = {table_of(iq2_values, NumberAt::low_bits, 1, offset),
                                          table_of(iq2_values, NumberAt::high_bits, 1, offset)};
  static constexpr NibbleTable minus[2] = {table_of(iq2_values, NumberAt::low_bits, -1, offset),
                                           table_of(iq2_values, NumberAt::high_bits, -1, offset)};

  // Sinks the 8 weights of the entry in a half of every lane; byte `byte` of `signs` has theirs.
  template <int half, int byte, typename Sink>
  [[gnu::always_inline]] static inline void sink_octet(I32x16 entries, I32x16 signs, int slot,
                                                       std::size_t group, Sink& sink) {
    const I32x16 numbers = spread_nibbles<half>(entries), of_octet = repeat_byte<byte>(signs);
    sink(slot, group,
         look_up_either(byte_table(plus[0].bytes), byte_table(minus[0].bytes), numbers,
                        has_bits(of_octet, 0x08040201)));
    sink(slot, group + 1,
         look_up_either(byte_table(plus[1].bytes), byte_table(minus[1].bytes), numbers,
                        has_bits(of_octet, static_cast<int>(0x80402010))));
  }
};

#endif

}  // namespace
}  // namespace sluice::kernels
