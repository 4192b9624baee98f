// What the formats share that index grids: the numbers in an entry, and signs.
#pragma once

#include <type_traits>

#include "kernels/formats/format.h"
#include "kernels/formats/grids.h"

namespace sluice::kernels {
namespace {

// The number of weight i in an entry of a grid of 8 or of 4 weights.
constexpr int number_of_8(std::uint16_t entry, int i) {
  return entry >> (4 * (i % 4) + 2 * (i / 4)) & 3;
}
constexpr int number_of_4(std::uint16_t entry, int i) {
  return entry >> (4 * i) & 15;
}

// Eight signs, bit i for weight i, of which seven are stored: the number of minus signs is even.
constexpr int with_eighth_sign(int seven) {
  int parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}

inline int negative_if(int value, int is_negative) {
  return is_negative ? -value : value;
}

// What is added to the bytes of weights of IQ1 and IQ2.
inline constexpr int iq1_offset = 16, iq2_offset = 64;

// The magnitudes of the numbers of the IQ2 grids.
inline constexpr int iq2_values[4] = {8, 25, 43, 0};

// Unpacks 8 weights of IQ2.
inline void unpack_iq2(std::uint16_t entry, int signs, int* q) {
  for (int i = 0; i < 8; ++i) {
    q[i] = negative_if(iq2_values[number_of_8(entry, i)], signs >> i & 1);
  }
}

// Eight times the values of the numbers of the grid.
inline constexpr int iq1_values[4] = {-8, 0, 8, 0};

// Unpacks 8 weights of IQ1.
inline void unpack_iq1(std::uint16_t entry, int shift, int* q) {
  for (int i = 0; i < 8; ++i) q[i] = iq1_values[number_of_8(entry, i)] + shift;
}

// Unpacks 8 weights of IQ3 from two entries.
inline void unpack_iq3(const int (&values)[8], std::uint16_t first, std::uint16_t second, int signs,
                       int* q) {
  for (int i = 0; i < 8; ++i) {
    const int number = number_of_4(i < 4 ? first : second, i % 4);
    q[i] = negative_if(values[number], signs >> i & 1);
  }
}

// Scales of four bits n that stand for 2 n + 1, low nibbles first.
inline int odd_scale_of(const std::uint8_t* scales, int s) {
  return 2 * (scales[s / 2] >> (s % 2 * 4) & 15) + 1;
}
inline void set_scale(std::uint8_t* scales, int s, int n) {
  scales[s / 2] |= static_cast<std::uint8_t>(n << (s % 2 * 4));
}

// The bytes of all entries of a grid: byte_of(entry, i) is that of weight i.
template <typename Entry, int entries, typename ByteOf>
constexpr EntryBytes<Entry, entries> entry_bytes(const std::uint16_t (&grid)[entries],
                                                 const ByteOf& byte_of) {
  EntryBytes<Entry, entries> bytes{};
  for (int n = 0; n < entries; ++n) {
    for (int i = 0; i < static_cast<int>(sizeof(Entry)); ++i) {
      bytes.of[n] |= Entry{static_cast<std::uint8_t>(byte_of(grid[n], i))} << (8 * i);
    }
  }
  return bytes;
}

#ifdef SLUICE_HAS_PANELS

#ifndef SLUICE_LOOKS_UP_ENTRIES

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

#endif

// How many bits the numbers of so many entries have beyond a byte.
constexpr int bits_above_8(int entries) {
  return entries == 256 ? 0 : 1 + bits_above_8(entries / 2);
}

// The bits of a byte that has been repeated in a lane: one for each of the first four weights of
// eight, and of the last four.
inline constexpr int first_four = 0x08040201, last_four = static_cast<int>(0x80402010);

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

// Byte i of every lane becomes its `width` bits from bit apart * i on.
template <int width, int apart = width>
[[gnu::always_inline]] inline I32x16 spread_bits(I32x16 x) {
  if constexpr (width == 1 && apart == 1) {
    const ByteMask has_bit = has_bits(repeat_byte<0>(x), first_four);
    return choose(has_bit, each_byte(1), each_byte(0));
  }
  constexpr std::uint32_t mask = (1 << width) - 1;
  const auto byte = [&](int i) __attribute__((always_inline)) {
    return bits_and(left_32(x, (8 - apart) * i), each_dword(static_cast<int>(mask << (8 * i))));
  };
  return bits_or(bits_or(byte(0), byte(1)), bits_or(byte(2), byte(3)));
}

#ifdef SLUICE_HAS_GRID_PRODUCT

#ifdef SLUICE_LOOKS_UP_BYTES

// Eight signs for the seven that are stored.
struct EvenSigns {
  constexpr EvenSigns() {
    for (int seven = 0; seven < 128; ++seven) {
      of[seven] = static_cast<std::uint8_t>(with_eighth_sign(seven));
    }
  }
  alignas(64) std::uint8_t of[128] = {};
};
inline constexpr EvenSigns even_signs;

// Eight signs in each byte for the seven in its low bits.
[[gnu::always_inline]] inline I32x16 signs_of_sevens(I32x16 x) {
  return look_up_sevens(even_signs.of, x);
}
// The same of four times seven signs in the low 28 bits of every lane.
[[gnu::always_inline]] inline I32x16 signs_of_octets(I32x16 x) {
  return signs_of_sevens(bits_from<0, 7, 14, 21>(x));
}

#else

[[gnu::always_inline]] inline I32x16 signs_of_sevens(I32x16 x) {
  return with_eighth_signs(bits_and(x, each_byte(0x7f)));
}
[[gnu::always_inline]] inline I32x16 signs_of_octets(I32x16 x) {
  return with_eighth_signs(spread_bits<7>(x));
}

#endif
#endif

// For tiers with a product of their own for these formats: four entries in the bytes of each lane,
// by the low bits of their indices; above[i] has those with bit 8 + i.
struct FourIndices {
  I32x16 low;
  ByteMask above[3];
};

// 32 weights of each row: four entries of 8 weights or two times four of 4 weights, and the signs
// of eight weights in each byte.
template <int entry_weights>
struct GridGroup {
  FourIndices indices[8 / entry_weights];
  I32x16 signs;
};

#ifdef SLUICE_LOOKS_UP_ENTRIES

constexpr bool looks_up_entries = true;

// Numbers that have been stored, to be read one by one. Compilers that know where they come from
// would take each out of a vector instead, which takes longer.
template <typename Number, std::size_t of_row>
[[gnu::always_inline]] inline const Number (
    &read_back(const Number (&numbers)[panel_rows][of_row]))[panel_rows][of_row] {
  const auto* p = &numbers;
  __asm__("" : "+r"(p));
  return *p;
}

// The numbers of four entries of each row: the bytes of `low`, and above each of them `width` bits
// of `high`, of which those of the next entry begin `apart` bits further up.
template <int width, int apart = width>
struct FourNumbers {
  FourNumbers() = default;
  FourNumbers(I32x16 low, [[maybe_unused]] I32x16 high) {
    if constexpr (width == 0) {
      kernels::store(of, low);
    } else {
      store_pairs(of, low, spread_bits<width, apart>(high));
    }
  }
  [[gnu::always_inline]] inline void store(const FourIndices& indices) {
    if constexpr (width == 0) {
      kernels::store(of, indices.low);
    } else {
      I32x16 high = choose(indices.above[0], each_byte(1), each_byte(0));
      if constexpr (width > 1) {
        high = bits_or(high, choose(indices.above[1], each_byte(2), each_byte(0)));
      }
      store_pairs(of, indices.low, high);
    }
  }

  using Row = std::conditional_t<width == 0, std::uint8_t, std::uint16_t>[4];
  Row of[panel_rows];
};

// The bytes x, negative where the mask has a byte, plus `offset`.
template <int offset>
[[gnu::always_inline]] inline I32x16 with_signs(const I32x16& x, const ByteMask& is_negative) {
  if constexpr (offset == 0) return negate_bytes(x, is_negative);
  return add_bytes(negate_bytes(x, is_negative), each_byte(offset));
}

#else

constexpr bool looks_up_entries = false;

// Two entries in the halves of every lane each: those of bytes 0 and 2, and of bytes 1 and 3.
struct FourEntries {
  I32x16 even, odd;
};

// The entries of four indices: the bytes of `low`, and above each of them `width` bits of `high`,
// of which those of the next index begin `apart` bits further up.
template <int width, int apart = width>
[[gnu::always_inline]] inline FourEntries look_up_four(const std::uint16_t* grid, I32x16 low,
                                                       I32x16 high) {
  constexpr int mask = (1 << width) - 1;
  const auto index = [&](I32x16 bytes, int first) __attribute__((always_inline)) {
    bytes = bits_and(bytes, each_dword(0x00ff00ff));
    if constexpr (width == 0) return bytes;
    const int of_second = 24 - (first + 2) * apart;
    return bits_or(bytes, bits_or(bits_and(left_32(high, 8 - first * apart), each_dword(mask << 8)),
                                  bits_and(left_32(high, of_second), each_dword(mask << 24))));
  };
  return {look_up_pairs<256 << width>(grid, index(low, 0)),
          look_up_pairs<256 << width>(grid, index(right_32(low, 8), 1))};
}

#endif

// Scales of four bits n that stand for 2 n + 1: the one whose lowest bit is bit `at` of the lanes.
[[gnu::always_inline]] inline I32x16 odd_scale(I32x16 x, int at) {
  const I32x16 doubled = at == 0 ? left_32(x, 1) : right_32(x, at - 1);
  return bits_or(bits_and(doubled, each_dword(30)), each_dword(1));
}

// What the products of `offset` with the activations of sub-block s take off a dot product. With 16
// or 32 weights in a sub-block.
template <int sub_block, int offset>
inline int offset_product(const BlockA256& a, int s) {
  static_assert(sub_block == 16 || sub_block == 32);
  const int sum = sub_block == 16 ? a.minus_32_sums_of_16[s]
                                  : a.minus_32_sums_of_16[2 * s] + a.minus_32_sums_of_16[2 * s + 1];
  return offset % 32 == 0 ? sum * (offset / 32) : sum / (32 / offset);
}

// What all formats have alike whose weights have no minima and bytes with an offset.
template <int sub_block_size, int offset_of_bytes>
struct OffsetPanels {
  static constexpr int sub_block = sub_block_size, slots = 64 / sub_block, min_pairs = 0;
  static constexpr int offset = offset_of_bytes;
  static constexpr bool has_offset = true, is_for_tiles = false;

  static constexpr int sub_block_of(int stage, int slot) { return slots * stage + slot; }
  static constexpr int scaled_up(int) { return 1; }
  static int offset_sum(const BlockA256& a, int s) {
    return offset_product<sub_block, offset_of_bytes>(a, s);
  }
  static I32x16 offset_dot(const BlockA256& a, int s) { return each_dword(offset_sum(a, s)); }
};

// The same of formats that index grids, whose bytes have an offset where products take unsigned
// ones.
template <int sub_block_size, int offset_of_bytes>
struct GridPanels : OffsetPanels<sub_block_size, offset_of_bytes> {
  static constexpr bool has_offset = !keeps_signs, unpacks_first = !looks_up_entries;
  static constexpr int offset = has_offset ? offset_of_bytes : 0;
};

// Sixteen nibbles n that stand for scales of 2 n + 1, in two words at offset `at`.
template <int at>
struct SixteenOddScales {
  template <typename Format, typename Rows>
  static SixteenOddScales read(Rows& rows) {
    const auto tail = words<Format>(rows, at - 8);  // these words may be the last of a block
    return {{tail.dword[2], tail.dword[3]}, multiply(half<Format>(rows), each(0.125f))};
  }
  I32x16 scale(int s) const { return odd_scale(nibbles[s / 8], 4 * (s % 8)); }

  I32x16 nibbles[2];
  F32x16 d;
};

// The bytes of weights of IQ2.
template <int offset>
struct Iq2Bytes {
  static constexpr int largest_q = 43 + offset;

  static int byte_of(int number, int is_negative) {
    return offset + negative_if(iq2_values[number], is_negative);
  }

#ifdef SLUICE_LOOKS_UP_ENTRIES
  // Sinks the 8 weights of entry `nth` of every row; byte `byte` of `signs` has theirs.
  template <int nth, int byte, typename Entries, typename Numbers, typename Sink>
  [[gnu::always_inline]] static inline void sink_octet(const Entries& octets,
                                                       const Numbers& numbers, I32x16 signs,
                                                       int slot, std::size_t group, Sink& sink) {
    const RowOctets found = look_up_octets<nth>(octets.of, numbers);
    const I32x16 of_octet = repeat_byte<byte>(signs);
    sink(slot, group, with_signs<offset>(found.first, has_bits(of_octet, first_four)));
    sink(slot, group + 1, with_signs<offset>(found.last, has_bits(of_octet, last_four)));
  }
#else
  // For the first and for the last four of eight.
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
                        has_bits(of_octet, first_four)));
    sink(slot, group + 1,
         look_up_either(byte_table(plus[1].bytes), byte_table(minus[1].bytes), numbers,
                        has_bits(of_octet, last_four)));
  }
#endif

  // Sinks the 32 weights of four entries, 16 for each slot: their numbers are the bytes of `low`
  // and, above them, bits of `high`.
  template <typename Format, typename Sink>
  [[gnu::always_inline]] static inline void sink_four(I32x16 low, I32x16 high, I32x16 signs,
                                                      int first_slot, int second_slot,
                                                      std::size_t group, Sink& sink) {
    constexpr int width = bits_above_8(Format::grid_entries);
#ifdef SLUICE_LOOKS_UP_ENTRIES
    const FourNumbers<width> four(low, high);
    const auto& numbers = read_back(four.of);
    sink_octet<0, 0>(Format::entries, numbers, signs, first_slot, group, sink);
    sink_octet<1, 1>(Format::entries, numbers, signs, first_slot, group + 2, sink);
    sink_octet<2, 2>(Format::entries, numbers, signs, second_slot, group + 4, sink);
    sink_octet<3, 3>(Format::entries, numbers, signs, second_slot, group + 6, sink);
#else
    const FourEntries entries = look_up_four<width>(Format::grid, low, high);
    sink_octet<0, 0>(entries.even, signs, first_slot, group, sink);
    sink_octet<0, 1>(entries.odd, signs, first_slot, group + 2, sink);
    sink_octet<1, 2>(entries.even, signs, second_slot, group + 4, sink);
    sink_octet<1, 3>(entries.odd, signs, second_slot, group + 6, sink);
#endif
  }

  // Sinks the 16 weights of two entries, by their numbers in the halves of `numbers`; bytes 1 and 3
  // of `signs` have theirs.
  template <typename Format, typename Sink>
  [[gnu::always_inline]] static inline void sink_two(I32x16 numbers, I32x16 signs, int slot,
                                                     std::size_t group, Sink& sink) {
#ifdef SLUICE_LOOKS_UP_ENTRIES
    std::uint16_t of[panel_rows][2];
    store(of, numbers);
    sink_octet<0, 0>(Format::entries, read_back(of), signs, slot, group, sink);
    sink_octet<1, 2>(Format::entries, read_back(of), signs, slot, group + 2, sink);
#else
    const I32x16 entries = look_up_pairs<Format::grid_entries>(Format::grid, numbers);
    sink_octet<0, 0>(entries, signs, slot, group, sink);
    sink_octet<1, 2>(entries, signs, slot, group + 2, sink);
#endif
  }
};

// The bytes of weights of IQ1, with a shift of 1 or of -1.
template <int offset>
struct Iq1Bytes {
  static constexpr int largest_q = 9 + offset;

  static int byte_of(int number, int is_minus) {
    return offset + iq1_values[number] + (is_minus ? -1 : 1);
  }

#ifdef SLUICE_LOOKS_UP_ENTRIES
  // Sinks the 8 weights of entry `nth` of every row.
  template <int nth, typename Entries, typename Numbers, typename Sink>
  [[gnu::always_inline]] static inline void sink_octet(const Entries& octets,
                                                       const Numbers& numbers, ByteMask is_minus,
                                                       int slot, std::size_t group, Sink& sink) {
    const RowOctets found = look_up_octets<nth>(octets.of, numbers);
    const I32x16 shift = choose(is_minus, each_byte(offset - 2), each_byte(offset));
    sink(slot, group, add_bytes(found.first, shift));
    sink(slot, group + 1, add_bytes(found.last, shift));
  }
#else
  // For the first and for the last four of eight.
  static constexpr NibbleTable plus[2] = {table_of(iq1_values, NumberAt::low_bits, 1, offset + 1),
                                          table_of(iq1_values, NumberAt::high_bits, 1, offset + 1)};
  static constexpr NibbleTable minus[2] = {
      table_of(iq1_values, NumberAt::low_bits, 1, offset - 1),
      table_of(iq1_values, NumberAt::high_bits, 1, offset - 1)};

  // Sinks the 8 weights of the entry in a half of every lane.
  template <int half, typename Sink>
  [[gnu::always_inline]] static inline void sink_octet(I32x16 entries, ByteMask is_minus, int slot,
                                                       std::size_t group, Sink& sink) {
    const I32x16 numbers = spread_nibbles<half>(entries);
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      sink(
          slot, group + i,
          look_up_either(byte_table(plus[i].bytes), byte_table(minus[i].bytes), numbers, is_minus));
    }
  }
#endif

  // Sinks the 32 weights of four entries, 16 for each slot: their numbers are the bytes of `low`
  // and, above them, three bits of `high`, those of the next entry `apart` further up. is_minus[i]
  // is the shift of entry i.
  template <int apart, typename Sink>
  [[gnu::always_inline]] static inline void sink_four(I32x16 low, I32x16 high,
                                                      const ByteMask (&is_minus)[4], int first_slot,
                                                      int second_slot, std::size_t group,
                                                      Sink& sink) {
#ifdef SLUICE_LOOKS_UP_ENTRIES
    const FourNumbers<3, apart> four(low, high);
    const auto& numbers = read_back(four.of);
    sink_octet<0>(iq1_octets, numbers, is_minus[0], first_slot, group, sink);
    sink_octet<1>(iq1_octets, numbers, is_minus[1], first_slot, group + 2, sink);
    sink_octet<2>(iq1_octets, numbers, is_minus[2], second_slot, group + 4, sink);
    sink_octet<3>(iq1_octets, numbers, is_minus[3], second_slot, group + 6, sink);
#else
    const FourEntries entries = look_up_four<3, apart>(iq1_grid, low, high);
    sink_octet<0>(entries.even, is_minus[0], first_slot, group, sink);
    sink_octet<0>(entries.odd, is_minus[1], first_slot, group + 2, sink);
    sink_octet<1>(entries.even, is_minus[2], second_slot, group + 4, sink);
    sink_octet<1>(entries.odd, is_minus[3], second_slot, group + 6, sink);
#endif
  }
};

// The bytes of weights of IQ3.
template <const int (&values)[8], int offset>
struct Iq3Bytes {
  static constexpr int largest_q = values[7] + offset;

  static int byte_of(int number, int is_negative) {
    return offset + negative_if(values[number], is_negative);
  }

#ifndef SLUICE_LOOKS_UP_ENTRIES
  static constexpr NibbleTable plus = table_of(values, NumberAt::nibble, 1, offset);
  static constexpr NibbleTable minus = table_of(values, NumberAt::nibble, -1, offset);

  // Sinks the 8 weights of the entries in a half of the lanes of both; byte `byte` of `signs` has
  // their signs.
  template <int half, int byte, typename Sink>
  [[gnu::always_inline]] static inline void sink_octet(I32x16 first, I32x16 second, I32x16 signs,
                                                       int slot, std::size_t group, Sink& sink) {
    const I32x16 of_octet = repeat_byte<byte>(signs);
    const I32x16 of_plus = byte_table(plus.bytes), of_minus = byte_table(minus.bytes);
    sink(slot, group,
         look_up_either(of_plus, of_minus, spread_nibbles<half>(first),
                        has_bits(of_octet, first_four)));
    sink(slot, group + 1,
         look_up_either(of_plus, of_minus, spread_nibbles<half>(second),
                        has_bits(of_octet, last_four)));
  }
#endif

  // Sinks the 16 weights of four entries: their numbers are the bytes of `low` and, above them,
  // bits of `high`. Their signs begin with byte `byte`.
  template <typename Format, int byte, typename Sink>
  [[gnu::always_inline]] static inline void sink_four(I32x16 low, I32x16 high, I32x16 signs,
                                                      int slot, std::size_t group, Sink& sink) {
    constexpr int width = bits_above_8(Format::grid_entries);
#ifdef SLUICE_LOOKS_UP_ENTRIES
    const I32x16 of_first = repeat_byte<byte>(signs), of_second = repeat_byte<byte + 1>(signs);
    const FourNumbers<width> four(low, high);
    const auto& numbers = read_back(four.of);
    const auto& quads = Format::entries.of;
    sink(slot, group,
         with_signs<offset>(look_up_quads<0>(quads, numbers), has_bits(of_first, first_four)));
    sink(slot, group + 1,
         with_signs<offset>(look_up_quads<1>(quads, numbers), has_bits(of_first, last_four)));
    sink(slot, group + 2,
         with_signs<offset>(look_up_quads<2>(quads, numbers), has_bits(of_second, first_four)));
    sink(slot, group + 3,
         with_signs<offset>(look_up_quads<3>(quads, numbers), has_bits(of_second, last_four)));
#else
    const FourEntries entries = look_up_four<width>(Format::grid, low, high);
    sink_octet<0, byte>(entries.even, entries.odd, signs, slot, group, sink);
    sink_octet<1, byte + 1>(entries.even, entries.odd, signs, slot, group + 2, sink);
#endif
  }
};

#else

template <int, int>
struct OffsetPanels {};
template <int, int>
struct GridPanels {};

#endif

}  // namespace
}  // namespace sluice::kernels
