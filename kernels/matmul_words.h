// Reads words of 16 rows, laid out as in the file or packed, and has the bit operations that the
// formats share. Included by the file of each tier through matmul_formats.h.
#pragma once

#include "kernels/matmul_driver.h"
#include "kernels/packed_order.h"

namespace sluice::kernels {
namespace {

inline I32x16 low_nibbles(I32x16 x) {
  return bits_and(x, each_byte(15));
}
inline I32x16 high_nibbles(I32x16 x) {
  return low_nibbles(right_16<4>(x));
}
inline F32x16 high_halves(I32x16 x) {
  return low_halves(right_32(x, 16));
}

// Moves `width` bits of every byte from bit `from` to bit `to`, and clears all others.
template <int width, int from, int to>
inline I32x16 move_bits(I32x16 x) {
  constexpr int mask = ((1 << width) - 1) << to;
  if constexpr (from == to) {
    return bits_and(x, each_byte(mask));
  } else if constexpr (from < to) {
    return bits_and(left_16<to - from>(x), each_byte(mask));
  } else {
    return bits_and(right_16<from - to>(x), each_byte(mask));
  }
}

// A table of sixteen bytes, values + offset, indexed by a nibble.
struct NibbleTable {
  constexpr NibbleTable(const std::int8_t (&values)[16], int offset) {
    for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(values[i] + offset);
  }
  std::uint8_t bytes[16] = {};
};

// Byte j of every lane.
inline I32x16 byte_of(I32x16 x, int j) {
  return j == 3 ? right_32(x, 24) : bits_and(right_32(x, 8 * j), each_dword(255));
}
inline I32x16 signed_byte_of(I32x16 x, int j) {
  return right_signed_32(j == 3 ? x : left_32(x, 24 - 8 * j), 24);
}

// words() reads four words, word() one, at byte `at` of a block without its odd bytes. For rows
// laid out as in the file both load 16 bytes, which must lie inside the block.
template <typename Format>
inline RowDwords words(FileRows& rows, std::size_t at) {
  return load_dwords(rows, BlockDivision<Format>::words_at + at);
}
template <typename Format>
inline I32x16 word(FileRows& rows, std::size_t at) {
  return words<Format>(rows, at).dword[0];
}

// Where a packed word lies; asks for the one that is as far ahead.
template <typename Format>
[[gnu::always_inline]] inline const std::byte* find_word(const PackedRows& rows, std::size_t at) {
  const std::byte* p = rows.words + BlockDivision<Format>::packed_at(at) * panel_rows;
  rows.ahead.prefetch_from(rows.words, p);
  return p;
}
template <typename Format>
[[gnu::always_inline]] inline I32x16 word(const PackedRows& rows, std::size_t at) {
  return load_words(find_word<Format>(rows, at));
}

// Four packed words. Each is loaded where it is used: all of them at once would take registers that
// the sums need.
struct PackedDwords {
  struct {
    const std::byte* at[4];
    [[gnu::always_inline]] inline I32x16 operator[](std::size_t j) const {
      return load_words(at[j]);
    }
  } dword;

  [[gnu::always_inline]] inline operator RowDwords() const {
    return {{dword[0], dword[1], dword[2], dword[3]}};
  }
};

template <typename Format>
[[gnu::always_inline]] inline PackedDwords words(const PackedRows& rows, std::size_t at) {
  return {{{find_word<Format>(rows, at), find_word<Format>(rows, at + 4),
            find_word<Format>(rows, at + 8), find_word<Format>(rows, at + 12)}}};
}

// The last four bytes of a block without odd bytes.
template <typename Format>
inline I32x16 last_word(FileRows& rows) {
  return words<Format>(rows, block_bytes<Format> - 16).dword[3];
}
template <typename Format>
inline I32x16 last_word(const PackedRows& rows) {
  return word<Format>(rows, block_bytes<Format> - 4);
}

// The odd bytes of a block, for formats where they are a half float.
template <typename Format>
inline F32x16 half(FileRows& rows) {
  static_assert(BlockDivision<Format>::odd_bytes == 2);
  if constexpr (BlockDivision<Format>::odd_at == 0) {
    return low_halves(load_dwords(rows, 0).dword[0]);
  } else {
    return high_halves(load_dwords(rows, block_bytes<Format> - 16).dword[3]);
  }
}
template <typename Format>
inline F32x16 half(const PackedRows& rows) {
  static_assert(BlockDivision<Format>::odd_bytes == 2);
  rows.ahead.prefetch_from(rows.odd);
  return load_halves(rows.odd, panel_rows);
}

// The odd byte of a block, for formats with one.
template <typename Format>
inline I32x16 odd_byte(FileRows& rows) {
  static_assert(BlockDivision<Format>::odd_bytes == 1 && BlockDivision<Format>::odd_at == 0);
  return bits_and(load_dwords(rows, 0).dword[0], each_dword(255));
}
template <typename Format>
inline I32x16 odd_byte(const PackedRows& rows) {
  static_assert(BlockDivision<Format>::odd_bytes == 1);
  rows.ahead.prefetch_from(rows.odd);
  return load_bytes(rows.odd);
}

// Stores the weights of a block in a panel. Tiers may have their own sinks, for other forms of the
// weights.
template <typename Format, typename Panel>
struct PanelSink {
  Panel& panel;
  std::size_t first_group = 0;

  [[gnu::always_inline]] inline void operator()(int, std::size_t group, I32x16 q) const {
    store(panel.q[first_group + group], q);
  }
};

}  // namespace
}  // namespace sluice::kernels
