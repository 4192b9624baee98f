// Formats with a float scale for each 32 weights: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Included by the
// file of each tier by way of matmul_formats.h, which says what a format has.
#pragma once

#include "kernels/matmul_words.h"

namespace sluice::kernels {
namespace {

struct SmallScales {
  F32x16 d, m;  // m only if the format has minima
};

template <typename Sink>
[[gnu::always_inline]] inline void sink_nibbles(const RowDwords& qs, Sink& sink) {
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) sink(0, j, low_nibbles(qs.dword[j]));
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) sink(0, 4 + j, high_nibbles(qs.dword[j]));
}

template <typename Sink>
[[gnu::always_inline]] inline void sink_looked_up(const RowDwords& qs, const NibbleTable& table,
                                                  Sink& sink) {
  const I32x16 bytes = byte_table(table.bytes);
  const auto looked_up = [&](int slot, std::size_t group, I32x16 nibbles)
      __attribute__((always_inline)) {
    sink(slot, group, look_up(bytes, nibbles));
  };
  sink_nibbles(qs, looked_up);
}

// Moves the four bits from position `at` on of every lane to bit 4 of the lane's four bytes: copies
// shifted by 4, 11, 18 and 25 put bit j of the four at bit 8 j + 4.
inline I32x16 spread_fifth_bits(I32x16 qh, int at) {
  const I32x16 four = bits_and(right_32(qh, at), each_dword(15));
  const I32x16 copies = bits_or(bits_or(left_32(four, 4), left_32(four, 11)),
                                bits_or(left_32(four, 18), left_32(four, 25)));
  return bits_and(copies, each_byte(0x10));
}

template <typename Sink>
[[gnu::always_inline]] inline void sink_five_bits(const RowDwords& qs, I32x16 qh, Sink& sink) {
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) {
    const I32x16 fifth = spread_fifth_bits(qh, 4 * static_cast<int>(j));
    sink(0, j, bits_or(low_nibbles(qs.dword[j]), fifth));
  }
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) {
    const I32x16 fifth = spread_fifth_bits(qh, 16 + 4 * static_cast<int>(j));
    sink(0, 4 + j, bits_or(high_nibbles(qs.dword[j]), fifth));
  }
}

template <typename Format, typename Rows>
inline SmallScales scales_and_minima(Rows& rows) {
  const I32x16 head = word<Format>(rows, 0);
  return {low_halves(head), high_halves(head)};
}

struct Q4_0 {
  static constexpr BlockType type = BlockType::q4_0;
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_0);
  static constexpr int largest_q = 15, sub_block = 32;
  static constexpr bool has_min = false, has_offset = true;
  static constexpr int offset = 8;
  static const std::int32_t* offsets(const BlockA32& a) { return a.minus_8_sums; }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<Q4_0>(rows), each(0)};
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
    sink_nibbles(words<Q4_0>(rows, 0), sink);
  }
};

struct Q4_1 {
  static constexpr BlockType type = BlockType::q4_1;
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_1);
  static constexpr int largest_q = 15, sub_block = 32;
  static constexpr bool has_min = true, has_offset = false;

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return scales_and_minima<Q4_1>(rows);
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
    sink_nibbles(words<Q4_1>(rows, 4), sink);
  }
};

struct Q5_0 {
  static constexpr BlockType type = BlockType::q5_0;
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_0);
  static constexpr int largest_q = 31, sub_block = 32;
  static constexpr bool has_min = false, has_offset = true;
  static constexpr int offset = 16;
  static const std::int32_t* offsets(const BlockA32& a) { return a.minus_16_sums; }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<Q5_0>(rows), each(0)};
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
    const I32x16 qh = word<Q5_0>(rows, 0);
    sink_five_bits(words<Q5_0>(rows, 4), qh, sink);
  }
};

struct Q5_1 {
  static constexpr BlockType type = BlockType::q5_1;
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_1);
  static constexpr int largest_q = 31, sub_block = 32;
  static constexpr bool has_min = true, has_offset = false;

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return scales_and_minima<Q5_1>(rows);
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
    const I32x16 qh = word<Q5_1>(rows, 4);
    sink_five_bits(words<Q5_1>(rows, 8), qh, sink);
  }
};

struct Q8_0 {
  static constexpr BlockType type = BlockType::q8_0;
  static constexpr std::size_t block_bytes = sizeof(BlockQ8_0);
  static constexpr int largest_q = 255, sub_block = 32;
  static constexpr bool has_min = false, has_offset = unsigned_bytes;
  static constexpr int offset = 128;
  static const std::int32_t* offsets(const BlockA32& a) { return a.minus_128_sums; }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<Q8_0>(rows), each(0)};
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const RowDwords qs = words<Q8_0>(rows, 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j];
        sink(0, 4 * i + j, unsigned_bytes ? bits_xor(q, each_byte(0x80)) : q);
      }
    }
  }
};

struct IQ4_NL {
  static constexpr BlockType type = BlockType::iq4_nl;
  static constexpr std::size_t block_bytes = sizeof(BlockIQ4_NL);
  static constexpr int largest_q = 255, sub_block = 32;
  static constexpr bool has_min = false, has_offset = unsigned_bytes;
  static constexpr int offset = 128;
  static const std::int32_t* offsets(const BlockA32& a) { return a.minus_128_sums; }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<IQ4_NL>(rows), each(0)};
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
    sink_looked_up(words<IQ4_NL>(rows, 0), iq4_table, sink);
  }
};

// The doubled weights are between -12 and 12; with an offset they fit into five bits.
struct MXFP4 {
  static constexpr BlockType type = BlockType::mxfp4;
  static constexpr std::size_t block_bytes = sizeof(BlockMXFP4);
  static constexpr int largest_q = 31, sub_block = 32;
  static constexpr bool has_min = false, has_offset = true;
  static constexpr int offset = 16;
  static const std::int32_t* offsets(const BlockA32& a) { return a.minus_16_sums; }

  // 2^(e - 128), as a product of two powers. These are never subnormal; the smallest results are.
  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    const auto power = [](I32x16 n) {  // 2^(n - 64)
      return as_floats(left_32(add(n, each_dword(127 - 64)), 23));
    };
    const I32x16 e = odd_byte<MXFP4>(rows);
    return {multiply(power(right_32(e, 1)), power(right_32(add(e, each_dword(1)), 1))), each(0)};
  }
  template <typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, Sink& sink) {
    constexpr NibbleTable table(doubled_e2m1, offset);
    sink_looked_up(words<MXFP4>(rows, 0), table, sink);
  }
};

template <typename Format, template <typename, typename> typename Sink = PanelSink>
struct UnpacksSmall {
  using Panel = SmallPanel;

  template <typename Rows>
  static void unpack(Rows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     SmallPanel& panel) {
    const std::size_t count = smaller(k_block, size - k) / 32;
    for (std::size_t s = 0; s < count; ++s) {
      go_to<Format>(rows, data, size / 32, k / 32 + s);
      Sink<Format, SmallPanel> sink{panel, 8 * s};
      const SmallScales scales = Format::scales(rows);
      Format::weights(rows, sink);
      store(panel.d[s], scales.d);
      if constexpr (Format::has_min) store(panel.m[s], scales.m);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels
