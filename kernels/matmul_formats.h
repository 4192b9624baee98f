// Unpacking of every weight format to panels, written once for all instruction sets. Included by
// the file of each tier after it has defined the lane types and operations used here:
//   I32x16   sixteen 32-bit lanes, lane = row        F32x16   sixteen floats
//   load_dwords(rows, offset)      16 bytes at `offset` of each of 16 rows, transposed: dword[j]
//                                  holds 32-bit word j of every row; reads ahead by as much
//   bits_and, bits_or, bits_xor, left_16<n>, right_16<n> (within 16 bits), left_32, right_32,
//   right_signed_32, each_byte(v), each_dword(v), to_float, low_halves (half floats in the low 16
//   bits), store, load_halves(p, count), load_bfloats(p, count)
// and the constants
//   high_nibbles_in_place   whether bytes may be up to 240: then the high nibbles of Q4_K stay
//   where
//                           they are, as 16 times their value, and the scale makes up for it
//                           exactly
//   unsigned_q8             whether Q8_0 is stored as q + 128
#pragma once

#include "kernels/dequantise.h"
#include "kernels/matmul_driver.h"

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

// Where bit `from` of every byte goes to bit `to`, alone.
template <int from, int to>
inline I32x16 move_bit(I32x16 x) {
  if constexpr (from <= to) {
    return bits_and(left_16<to - from>(x), each_byte(1 << to));
  } else {
    return bits_and(right_16<from - to>(x), each_byte(1 << to));
  }
}

template <typename Panel>
inline void store_q(Panel& panel, std::size_t group, I32x16 q) {
  store(panel.q[group], q);
}

// --- Formats with integer scales: Q4_K, Q5_K, Q6_K -----------------------------------------------

// Byte j of every lane as a float.
template <bool is_signed>
inline F32x16 byte_to_float(I32x16 x, int j) {
  const I32x16 top = left_32(x, 24 - 8 * j);
  return to_float(is_signed ? right_signed_32(top, 24) : right_32(top, 24));
}

// d, dmin and the 6-bit scales and minima of Q4_K and Q5_K. The scales of odd sub-blocks are
// multiplied by odd_factor.
inline void unpack_header(PanelRows& rows, std::size_t at, float odd_factor, IntegerPanel& panel) {
  const RowDwords head = load_dwords(rows, at);
  store(panel.d, low_halves(head.dword[0]));
  store(panel.dmin, high_halves(head.dword[0]));
  const I32x16 s0 = head.dword[1], s1 = head.dword[2], s2 = head.dword[3];
  const auto high_bits = [](I32x16 x) { return bits_and(right_32(x, 2), each_byte(0x30)); };
  const I32x16 scale[2] = {bits_and(s0, each_byte(63)), bits_or(low_nibbles(s2), high_bits(s0))};
  const I32x16 min[2] = {bits_and(s1, each_byte(63)), bits_or(high_nibbles(s2), high_bits(s1))};
  for (int j = 0; j < 8; ++j) {
    const F32x16 s = byte_to_float<false>(scale[j / 4], j % 4);
    store(panel.scale[j], j % 2 ? multiply(s, each(odd_factor)) : s);
  }
  const I32x16 even_bytes = each_dword(0x00ff00ff);
  for (int j = 0; j < 2; ++j) {
    store(panel.min[2 * j], bits_and(min[j], even_bytes));
    store(panel.min[2 * j + 1], bits_and(right_32(min[j], 8), even_bytes));
  }
}

struct Q4_K {
  static constexpr int sub_block = 32, largest_q = 15;
  static constexpr bool has_min = true, has_offset = false;

  static void unpack(PanelRows& rows, std::size_t k, std::size_t, IntegerPanel& panel) {
    const std::size_t at = k / k_block * sizeof(BlockQ4_K);
    unpack_header(rows, at, high_nibbles_in_place ? 1.0f / 16 : 1.0f, panel);
    for (std::size_t i = 0; i < 8; ++i) {
      const RowDwords qs = load_dwords(rows, at + 16 + 16 * i);
      const std::size_t group = i / 2 * 16 + i % 2 * 4;
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j];
        store_q(panel, group + j, low_nibbles(q));
        store_q(panel, group + 8 + j,
                high_nibbles_in_place ? bits_and(q, each_byte(0xf0)) : high_nibbles(q));
      }
    }
  }
};

struct Q5_K {
  static constexpr int sub_block = 32, largest_q = 31;
  static constexpr bool has_min = true, has_offset = false;

  static void unpack(PanelRows& rows, std::size_t k, std::size_t, IntegerPanel& panel) {
    const std::size_t at = k / k_block * sizeof(BlockQ5_K);
    unpack_header(rows, at, 1.0f, panel);
    for (std::size_t i = 0; i < 2; ++i) {
      const RowDwords qh = load_dwords(rows, at + 16 + 16 * i);
      unpack_pair<0>(rows, at + 48 + 16 * i, qh, 4 * i, panel);
      unpack_pair<1>(rows, at + 48 + 16 * i, qh, 4 * i, panel);
      unpack_pair<2>(rows, at + 48 + 16 * i, qh, 4 * i, panel);
      unpack_pair<3>(rows, at + 48 + 16 * i, qh, 4 * i, panel);
    }
  }

 private:
  // 16 bytes of qs are the low bits of 16 weights in sub-block 2 pair and of 16 in the next.
  template <int pair>
  static void unpack_pair(PanelRows& rows, std::size_t qs_at, const RowDwords& qh,
                          std::size_t first_group, IntegerPanel& panel) {
    const RowDwords qs = load_dwords(rows, qs_at + 32 * pair);
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t group = 16 * pair + first_group + j;
      const I32x16 q = qs.dword[j], fifth = qh.dword[j];
      store_q(panel, group, bits_or(low_nibbles(q), move_bit<2 * pair, 4>(fifth)));
      store_q(panel, group + 8, bits_or(high_nibbles(q), move_bit<2 * pair + 1, 4>(fifth)));
    }
  }
};

struct Q6_K {
  static constexpr int sub_block = 16, largest_q = 63;
  static constexpr bool has_min = false, has_offset = true;

  static void unpack(PanelRows& rows, std::size_t k, std::size_t, IntegerPanel& panel) {
    const std::size_t at = k / k_block * sizeof(BlockQ6_K);
    const auto high = [](I32x16 x) { return bits_and(x, each_byte(0x30)); };
    for (std::size_t i = 0; i < 4; ++i) {  // 16 bytes of qh: half i / 2, part i % 2
      const RowDwords qh = load_dwords(rows, at + 128 + 16 * i);
      const std::size_t ql_at = at + 64 * (i / 2) + 16 * (i % 2);
      const RowDwords ql0 = load_dwords(rows, ql_at);
      const RowDwords ql1 = load_dwords(rows, ql_at + 32);
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t group = 32 * (i / 2) + 4 * (i % 2) + j;
        const I32x16 h = qh.dword[j], l0 = ql0.dword[j], l1 = ql1.dword[j];
        store_q(panel, group, bits_or(low_nibbles(l0), high(left_16<4>(h))));
        store_q(panel, group + 8, bits_or(low_nibbles(l1), high(left_16<2>(h))));
        store_q(panel, group + 16, bits_or(high_nibbles(l0), high(h)));
        store_q(panel, group + 24, bits_or(high_nibbles(l1), high(right_16<2>(h))));
      }
    }
    const RowDwords scales = load_dwords(rows, at + 192);
    for (int s = 0; s < 16; ++s) {
      store(panel.scale[s], byte_to_float<true>(scales.dword[s / 4], s % 4));
    }
    // d is the last two bytes of the block.
    store(panel.d, high_halves(load_dwords(rows, at + 194).dword[3]));
  }
};

// --- Formats with a float scale per 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 -----------------------------

inline void unpack_nibbles(const RowDwords& qs, std::size_t s, SmallPanel& panel) {
  for (std::size_t j = 0; j < 4; ++j) {
    store_q(panel, 8 * s + j, low_nibbles(qs.dword[j]));
    store_q(panel, 8 * s + 4 + j, high_nibbles(qs.dword[j]));
  }
}

// Spreads the four bits from position `at` of every lane to bit 4 of its four bytes: copies shifted
// by 4, 11, 18 and 25 put bit j of the four at bit 8 j + 4.
inline I32x16 spread_fifth_bits(I32x16 qh, int at) {
  const I32x16 four = bits_and(right_32(qh, at), each_dword(15));
  const I32x16 copies = bits_or(bits_or(left_32(four, 4), left_32(four, 11)),
                                bits_or(left_32(four, 18), left_32(four, 25)));
  return bits_and(copies, each_byte(0x10));
}

inline void unpack_five_bits(const RowDwords& qs, I32x16 qh, std::size_t s, SmallPanel& panel) {
  for (int j = 0; j < 4; ++j) {
    const I32x16 low = spread_fifth_bits(qh, 4 * j), high = spread_fifth_bits(qh, 16 + 4 * j);
    store_q(panel, 8 * s + j, bits_or(low_nibbles(qs.dword[j]), low));
    store_q(panel, 8 * s + 4 + j, bits_or(high_nibbles(qs.dword[j]), high));
  }
}

struct Q4_0 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_0);
  static constexpr int largest_q = 15;
  static constexpr bool has_min = false, has_offset = true;
  static const std::int32_t* offsets(const ColumnA32& a) { return a.minus_8_sums; }

  static void unpack_block(PanelRows& rows, std::size_t at, std::size_t s, SmallPanel& panel) {
    store(panel.d[s], low_halves(load_dwords(rows, at).dword[0]));
    unpack_nibbles(load_dwords(rows, at + 2), s, panel);
  }
};

struct Q4_1 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_1);
  static constexpr int largest_q = 15;
  static constexpr bool has_min = true, has_offset = false;

  static void unpack_block(PanelRows& rows, std::size_t at, std::size_t s, SmallPanel& panel) {
    const I32x16 head = load_dwords(rows, at).dword[0];
    store(panel.d[s], low_halves(head));
    store(panel.m[s], high_halves(head));
    unpack_nibbles(load_dwords(rows, at + 4), s, panel);
  }
};

struct Q5_0 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_0);
  static constexpr int largest_q = 31;
  static constexpr bool has_min = false, has_offset = true;
  static const std::int32_t* offsets(const ColumnA32& a) { return a.minus_16_sums; }

  static void unpack_block(PanelRows& rows, std::size_t at, std::size_t s, SmallPanel& panel) {
    const RowDwords head = load_dwords(rows, at);  // d, qh, and the first bytes of qs
    store(panel.d[s], low_halves(head.dword[0]));
    const I32x16 qh = bits_or(right_32(head.dword[0], 16), left_32(head.dword[1], 16));
    unpack_five_bits(load_dwords(rows, at + 6), qh, s, panel);
  }
};

struct Q5_1 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_1);
  static constexpr int largest_q = 31;
  static constexpr bool has_min = true, has_offset = false;

  static void unpack_block(PanelRows& rows, std::size_t at, std::size_t s, SmallPanel& panel) {
    const RowDwords head = load_dwords(rows, at);
    store(panel.d[s], low_halves(head.dword[0]));
    store(panel.m[s], high_halves(head.dword[0]));
    unpack_five_bits(load_dwords(rows, at + 8), head.dword[1], s, panel);
  }
};

struct Q8_0 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ8_0);
  static constexpr int largest_q = 255;
  static constexpr bool has_min = false, has_offset = unsigned_q8;
  static const std::int32_t* offsets(const ColumnA32& a) { return a.minus_128_sums; }

  static void unpack_block(PanelRows& rows, std::size_t at, std::size_t s, SmallPanel& panel) {
    store(panel.d[s], low_halves(load_dwords(rows, at).dword[0]));
    for (std::size_t i = 0; i < 2; ++i) {
      const RowDwords qs = load_dwords(rows, at + 2 + 16 * i);
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j];
        store_q(panel, 8 * s + 4 * i + j, unsigned_q8 ? bits_xor(q, each_byte(0x80)) : q);
      }
    }
  }
};

// --- All other formats, as floats ----------------------------------------------------------------

// 16-bit floats are widened here, quantised formats go through the scalar dequantisation; then four
// weights of 16 rows at a time are transposed.
template <BlockType type, std::size_t block_weights, std::size_t block_bytes>
struct FloatFormat {
  static void unpack(PanelRows& rows, std::size_t k, std::size_t weights, FloatPanel& panel) {
    alignas(64) float values[panel_rows][k_block];
    const std::byte* at = rows.first + k / block_weights * block_bytes;
    for (std::size_t r = 0; r < panel_rows; ++r) {
      convert(at + r * rows.row_bytes, weights, values[r]);
    }
    PanelRows floats{reinterpret_cast<const std::byte*>(values), sizeof values[0], rows.ahead};
    for (std::size_t i = 0; i < weights; i += 4) {
      const RowDwords four = load_dwords(floats, i * sizeof(float));
      for (std::size_t j = 0; j < 4; ++j) store(panel.w[i + j], four.dword[j]);
    }
    rows.ahead = floats.ahead;
  }

 private:
  static void convert(const std::byte* p, std::size_t weights, float* out) {
    if constexpr (type == BlockType::f16 || type == BlockType::bf16) {
      for (std::size_t i = 0; i < weights; i += 16) {
        const std::size_t count = smaller(16, weights - i);
        store(out + i, type == BlockType::f16 ? load_halves(p + 2 * i, count)
                                              : load_bfloats(p + 2 * i, count));
      }
    } else {
      dequantise(type, p, weights, out);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels
