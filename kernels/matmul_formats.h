// Every weight format, written once for all instruction sets: how the words of 16 rows become
// unsigned bytes and scales. Included by the file of each tier after it has defined the lane types
// and operations used here:
//   I32x16   sixteen 32-bit lanes, lane = row        F32x16   sixteen floats
//   load_dwords(FileRows&, offset)   16 bytes at `offset` of each of 16 rows, transposed: dword[j]
//                                    holds 32-bit word j of every row; reads ahead by as much
//   load_words(p)                    one packed word of 16 rows
//   load_halves(p, count), load_bfloats(p, count), low_halves (half floats in the low 16 bits)
//   bits_and, bits_or, bits_xor, left_16<n>, right_16<n> (within 16 bits), left_32, right_32,
//   right_signed_32, each_byte(v), each_dword(v), each(v), store
//   add(I32x16, I32x16), multiply(F32x16, F32x16), multiply_add(a, b, c) = a b + c, to_float,
//   to_integer (of a float that is one)
// and the constants
//   high_nibbles_in_place   whether bytes may be up to 240: then the high nibbles of Q4_K stay
//                           where they are, as 16 times their value, and the scale makes up for it
//                           exactly
//   unsigned_q8             whether Q8_0 is stored as q + 128
// A format with has_offset stands for weights q - offset; the weights of sub-block s come
// multiplied by scaled_up(s).
//
// The weights of a block come in stages. weights<stage>(rows, scales, sink) calls
// sink(slot, group, q) with q the weights 4 group ... 4 group + 3 of each row; `slot` counts the
// sub-blocks of the stage, all of which are complete when the stage ends.
#pragma once

#include <type_traits>

#include "kernels/dequantise.h"
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

// Where bit `from` of every byte goes to bit `to`, alone.
template <int from, int to>
inline I32x16 move_bit(I32x16 x) {
  if constexpr (from <= to) {
    return bits_and(left_16<to - from>(x), each_byte(1 << to));
  } else {
    return bits_and(right_16<from - to>(x), each_byte(1 << to));
  }
}

// --- Words of 16 rows, from the file's layout or from packed panels ------------------------------

struct Q6_K;

// Four words, or one, `at` bytes into what a block of the format has besides its half float.
template <typename Format>
inline RowDwords words(FileRows& rows, std::size_t at) {
  return load_dwords(rows, Format::half_at == 0 ? at + 2 : at);
}
template <typename Format>
inline I32x16 word(FileRows& rows, std::size_t at) {
  return words<Format>(rows, at).dword[0];
}

template <typename Format>
[[gnu::always_inline]] inline I32x16 word(const PackedRows& rows, std::size_t at) {
  if constexpr (std::is_same_v<Format, Q6_K>) at = packed_q6_k(at);
  const std::byte* p = rows.words + at * panel_rows;
  __builtin_prefetch(p + rows.ahead, 0, 3);
  return load_words(p);
}
template <typename Format>
[[gnu::always_inline]] inline RowDwords words(const PackedRows& rows, std::size_t at) {
  return {{word<Format>(rows, at), word<Format>(rows, at + 4), word<Format>(rows, at + 8),
           word<Format>(rows, at + 12)}};
}

// The half float of a block that has one apart. Loads of a block stay inside of it.
template <typename Format>
inline F32x16 half(FileRows& rows) {
  if constexpr (Format::half_at == 0) {
    return low_halves(load_dwords(rows, 0).dword[0]);
  } else {
    static_assert(Format::half_at + 2 == Format::block_bytes);
    return high_halves(load_dwords(rows, Format::block_bytes - 16).dword[3]);
  }
}
template <typename Format>
inline F32x16 half(const PackedRows& rows) {
  __builtin_prefetch(rows.halves + rows.ahead, 0, 3);
  return load_halves(rows.halves, panel_rows);
}

// --- Formats with integer scales: Q4_K, Q5_K, Q6_K -----------------------------------------------

// Byte j of every lane.
inline I32x16 byte_of(I32x16 x, int j) {
  return j == 3 ? right_32(x, 24) : bits_and(right_32(x, 8 * j), each_dword(255));
}
inline I32x16 signed_byte_of(I32x16 x, int j) {
  return right_signed_32(j == 3 ? x : left_32(x, 24 - 8 * j), 24);
}

// d, dmin and the 6-bit scales and minima of Q4_K and Q5_K.
struct SixBitScales {
  template <typename Format, typename Rows>
  static SixBitScales read(Rows& rows) {
    const RowDwords head = words<Format>(rows, 0);
    const I32x16 s0 = head.dword[1], s1 = head.dword[2], s2 = head.dword[3];
    const auto high_bits = [](I32x16 x) { return bits_and(right_32(x, 2), each_byte(0x30)); };
    return {{bits_and(s0, each_byte(63)), bits_or(low_nibbles(s2), high_bits(s0))},
            {bits_and(s1, each_byte(63)), bits_or(high_nibbles(s2), high_bits(s1))},
            low_halves(head.dword[0]),
            high_halves(head.dword[0])};
  }

  I32x16 scale(int s) const { return byte_of(scales[s / 4], s % 4); }
  // Of two sub-blocks, as 16-bit pairs: (0 2) (1 3) (4 6) (5 7).
  I32x16 min_pair(int j) const {
    const I32x16 m = j % 2 != 0 ? right_32(minima[j / 2], 8) : minima[j / 2];
    return bits_and(m, each_dword(0x00ff00ff));
  }

  I32x16 scales[2], minima[2];
  F32x16 d, dmin;
};

// Q5_K also has its fifth bits in one place, for all stages.
struct ScalesAndFifthBits : SixBitScales {
  template <typename Format, typename Rows>
  static ScalesAndFifthBits read(Rows& rows) {
    return {SixBitScales::read<Format>(rows), {words<Format>(rows, 16), words<Format>(rows, 32)}};
  }

  RowDwords qh[2];
};

// The 8-bit scales of Q6_K.
struct EightBitScales {
  template <typename Format, typename Rows>
  static EightBitScales read(Rows& rows) {
    const RowDwords scales = words<Format>(rows, 192);
    return {{scales.dword[0], scales.dword[1], scales.dword[2], scales.dword[3]},
            half<Format>(rows)};
  }
  I32x16 scale(int s) const { return signed_byte_of(scales[s / 4], s % 4); }

  I32x16 scales[4];
  F32x16 d;
};

struct Q4_K {
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_K), half_at = no_half;
  static constexpr int largest_q = 15, stages = 4, slots = 2, sub_block = 32, exact_run = 4;
  static constexpr bool has_min = true, has_offset = false;
  using Scales = SixBitScales;

  static constexpr int sub_block_of(int stage, int slot) { return 2 * stage + slot; }
  static constexpr int scaled_up(int s) { return high_nibbles_in_place && s % 2 != 0 ? 16 : 1; }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales&, Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const RowDwords qs = words<Q4_K>(rows, 16 + 32 * stage + 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j];
        const std::size_t group = 16 * stage + 4 * i + j;
        sink(0, group, low_nibbles(q));
        sink(1, group + 8, high_nibbles_in_place ? bits_and(q, each_byte(0xf0)) : high_nibbles(q));
      }
    }
  }
};

struct Q5_K {
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_K), half_at = no_half;
  static constexpr int largest_q = 31, stages = 4, slots = 2, sub_block = 32, exact_run = 2;
  static constexpr bool has_min = true, has_offset = false;
  using Scales = ScalesAndFifthBits;

  static constexpr int sub_block_of(int stage, int slot) { return 2 * stage + slot; }
  static constexpr int scaled_up(int) { return 1; }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales& scales, Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const RowDwords qs = words<Q5_K>(rows, 48 + 32 * stage + 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j], fifth = scales.qh[i].dword[j];
        const std::size_t group = 16 * stage + 4 * i + j;
        sink(0, group, bits_or(low_nibbles(q), move_bit<2 * stage, 4>(fifth)));
        sink(1, group + 8, bits_or(high_nibbles(q), move_bit<2 * stage + 1, 4>(fifth)));
      }
    }
  }
};

struct Q6_K {
  static constexpr std::size_t block_bytes = sizeof(BlockQ6_K), half_at = 208;
  static constexpr int largest_q = 63, stages = 4, slots = 4, sub_block = 16, exact_run = 2;
  static constexpr bool has_min = false, has_offset = true;
  static constexpr int offset = 32;
  using Scales = EightBitScales;

  // A stage is a half of the block and an even or odd 16 bytes in it.
  static constexpr int sub_block_of(int stage, int slot) {
    return 8 * (stage / 2) + stage % 2 + 2 * slot;
  }
  static constexpr int scaled_up(int) { return 1; }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales&, Sink& sink) {
    constexpr std::size_t at_half = stage / 2, part = stage % 2;
    const auto high = [](I32x16 x) { return bits_and(x, each_byte(0x30)); };
    const RowDwords qh = words<Q6_K>(rows, 128 + 32 * at_half + 16 * part);
    const RowDwords ql0 = words<Q6_K>(rows, 64 * at_half + 16 * part);
    const RowDwords ql1 = words<Q6_K>(rows, 64 * at_half + 16 * part + 32);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t group = 32 * at_half + 4 * part + j;
      const I32x16 h = qh.dword[j], l0 = ql0.dword[j], l1 = ql1.dword[j];
      sink(0, group, bits_or(low_nibbles(l0), high(left_16<4>(h))));
      sink(1, group + 8, bits_or(low_nibbles(l1), high(left_16<2>(h))));
      sink(2, group + 16, bits_or(high_nibbles(l0), high(h)));
      sink(3, group + 24, bits_or(high_nibbles(l1), high(right_16<2>(h))));
    }
  }
};

// Keeps the weights of a block in a panel. Tiers may have sinks of their own, for other forms of
// the weights.
template <typename Format, typename Panel>
struct PanelSink {
  Panel& panel;
  std::size_t first_group = 0;

  [[gnu::always_inline]] inline void operator()(int, std::size_t group, I32x16 q) const {
    store(panel.q[first_group + group], q);
  }
};

template <typename Format, typename Rows, typename Sink>
inline void unpack_stages(Rows& rows, const typename Format::Scales& scales, Sink& sink) {
  Format::template weights<0>(rows, scales, sink);
  Format::template weights<1>(rows, scales, sink);
  Format::template weights<2>(rows, scales, sink);
  Format::template weights<3>(rows, scales, sink);
}

template <typename Format>
inline void store_block_scales(const typename Format::Scales& scales, BlockScales& out) {
  store(out.d, scales.d);
  if constexpr (Format::has_min) {
    store(out.dmin, scales.dmin);
    for (int j = 0; j < 4; ++j) store(out.min[j], scales.min_pair(j));
  }
}

// The scale of a sub-block for its weights as they come.
template <typename Format>
inline F32x16 float_scale(const typename Format::Scales& scales, int s) {
  const F32x16 scale = to_float(scales.scale(s));
  const int up = Format::scaled_up(s);
  return up == 1 ? scale : multiply(scale, each(1.0f / static_cast<float>(up)));
}

// Sums scale * dot over the sub-blocks of a block, in any order. Integer products of 32 bits are
// slow; floats are as exact as long as no sum reaches 2^24, for exact_run sub-blocks at least.
template <typename Format>
class BlockSum {
 public:
  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, F32x16 scale) {
    run_ = multiply_add(to_float(dot), scale, run_);
  }
  // To be called after each exact_run sub-blocks.
  [[gnu::always_inline]] inline void end_run() {
    total_ = add(total_, to_integer(run_));
    run_ = each(0);
  }
  F32x16 total() const { return to_float(total_); }

 private:
  static constexpr int largest_weight =  // times its scale
      Format::has_offset ? (Format::largest_q + 1) / 2 * 128 : Format::largest_q * 63;
  static_assert(Format::exact_run * Format::sub_block * largest_weight * 127 < 1 << 24);

  F32x16 run_ = each(0);
  I32x16 total_ = each_dword(0);
};

// The part of a kernel that unpacks: its base.
template <typename Format>
struct UnpacksIntegers {
  using Panel = IntegerPanel;

  template <typename Rows>
  static void unpack(Rows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     IntegerPanel& panel) {
    go_to<Format>(rows, data, size / k_block, k / k_block);
    const auto scales = Format::Scales::template read<Format>(rows);
    PanelSink<Format, IntegerPanel> sink{panel};
    unpack_stages<Format>(rows, scales, sink);
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      store(panel.scale[s], float_scale<Format>(scales, s));
    }
    store_block_scales<Format>(scales, panel);
  }
};

// --- Formats with a float scale per 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 -----------------------------

struct SmallScales {
  F32x16 d, m;  // m only where the format has minima
};

template <typename Sink>
[[gnu::always_inline]] inline void sink_nibbles(const RowDwords& qs, Sink& sink) {
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) sink(0, j, low_nibbles(qs.dword[j]));
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) sink(0, 4 + j, high_nibbles(qs.dword[j]));
}

// Spreads the four bits from position `at` of every lane to bit 4 of its four bytes: copies shifted
// by 4, 11, 18 and 25 put bit j of the four at bit 8 j + 4.
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
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_0), half_at = 0;
  static constexpr int largest_q = 15;
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
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_1), half_at = no_half;
  static constexpr int largest_q = 15;
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
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_0), half_at = 0;
  static constexpr int largest_q = 31;
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
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_1), half_at = no_half;
  static constexpr int largest_q = 31;
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
  static constexpr std::size_t block_bytes = sizeof(BlockQ8_0), half_at = 0;
  static constexpr int largest_q = 255;
  static constexpr bool has_min = false, has_offset = unsigned_q8;
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
        sink(0, 4 * i + j, unsigned_q8 ? bits_xor(q, each_byte(0x80)) : q);
      }
    }
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

// Calls `integer` or `small` with the format of a type, or returns false for one of other formats.
template <typename Integer, typename Small>
inline bool visit_quantised(BlockType type, const Integer& integer, const Small& small) {
  switch (type) {
    case BlockType::q4_k:
      return integer(Q4_K{}), true;
    case BlockType::q5_k:
      return integer(Q5_K{}), true;
    case BlockType::q6_k:
      return integer(Q6_K{}), true;
    case BlockType::q4_0:
      return small(Q4_0{}), true;
    case BlockType::q4_1:
      return small(Q4_1{}), true;
    case BlockType::q5_0:
      return small(Q5_0{}), true;
    case BlockType::q5_1:
      return small(Q5_1{}), true;
    case BlockType::q8_0:
      return small(Q8_0{}), true;
    default:
      return false;
  }
}

// --- All other formats, as floats ----------------------------------------------------------------

// 16-bit floats are widened here, quantised formats go through the scalar dequantisation; then four
// weights of 16 rows at a time are transposed.
template <BlockType type, std::size_t block_weights, std::size_t block_bytes>
struct FloatFormat {
  static constexpr std::size_t weights_per_block = block_weights, bytes_per_block = block_bytes;

  static void unpack(FileRows& rows, std::size_t weights, FloatPanel& panel) {
    alignas(64) float values[panel_rows][k_block];
    for (std::size_t r = 0; r < panel_rows; ++r) {
      convert(rows.block + r * rows.row_bytes, weights, values[r]);
    }
    FileRows floats{reinterpret_cast<const std::byte*>(values), sizeof values[0], rows.ahead};
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

template <typename Format>
struct UnpacksFloats {
  using Panel = FloatPanel;

  static void unpack(FileRows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     FloatPanel& panel) {
    rows.block = data + k / Format::weights_per_block * Format::bytes_per_block;
    Format::unpack(rows, smaller(k_block, size - k), panel);
  }
};

}  // namespace
}  // namespace sluice::kernels
