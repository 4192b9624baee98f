// Formats whose sub-blocks have integer scales, in blocks of 256: Q2_K to Q6_K, and IQ4_XS.
// Included by the file of each tier by way of matmul_formats.h, which says what a format has.
#pragma once

#include "kernels/matmul_words.h"

namespace sluice::kernels {
namespace {

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
  // The minima of two sub-blocks, as 16-bit pairs: (0 2) (1 3) (4 6) (5 7).
  I32x16 min_pair(int j) const {
    const I32x16 m = j % 2 != 0 ? right_32(minima[j / 2], 8) : minima[j / 2];
    return bits_and(m, each_dword(0x00ff00ff));
  }

  I32x16 scales[2], minima[2];
  F32x16 d, dmin;
};

// The same, and the fifth bits of Q5_K, which are read once for all stages.
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

// d, dmin and the 4-bit scales and minima of Q2_K.
struct FourBitScales {
  template <typename Format, typename Rows>
  static FourBitScales read(Rows& rows) {
    const RowDwords head = words<Format>(rows, 0);
    const I32x16 tail = last_word<Format>(rows);
    return {head, low_halves(tail), high_halves(tail)};
  }

  I32x16 scale(int s) const {
    return bits_and(right_32(scales_and_minima.dword[s / 4], 8 * (s % 4)), each_dword(15));
  }
  // The minima of two sub-blocks, as 16-bit pairs: (0 2) (1 3) (4 6) (5 7) and so on.
  I32x16 min_pair(int j) const {
    const I32x16 four = right_32(scales_and_minima.dword[j / 2], 4 + 8 * (j % 2));
    return bits_and(four, each_dword(0x000f000f));
  }

  RowDwords scales_and_minima;
  F32x16 d, dmin;
};

// The 6-bit scales of Q3_K, as signed numbers, and the third bits of its weights.
struct ScalesAndThirdBits {
  template <typename Format, typename Rows>
  static ScalesAndThirdBits read(Rows& rows) {
    const RowDwords tail = words<Format>(rows, 92);
    const I32x16 s0 = tail.dword[1], s1 = tail.dword[2], s2 = tail.dword[3];
    const auto scales = [](I32x16 low, I32x16 high) {  // less 32: the sixth bit becomes the sign
      return bits_xor(bits_or(low, bits_and(high, each_byte(0x30))), each_byte(0x20));
    };
    return {{scales(low_nibbles(s0), left_16<4>(s2)), scales(low_nibbles(s1), left_16<2>(s2)),
             scales(high_nibbles(s0), s2), scales(high_nibbles(s1), right_16<2>(s2))},
            {words<Format>(rows, 0), words<Format>(rows, 16)},
            half<Format>(rows)};
  }

  I32x16 scale(int s) const {
    return right_signed_32(left_32(scales[s / 4], 26 - 8 * (s % 4)), 26);
  }

  I32x16 scales[4];
  RowDwords hmask[2];
  F32x16 d;
};

// The 6-bit scales of IQ4_XS: four bits of each in one word, two in the upper half of another.
struct SplitScales {
  template <typename Format, typename Rows>
  static SplitScales read(Rows& rows) {
    const RowDwords head = words<Format>(rows, 0);
    return {right_32(head.dword[0], 16), head.dword[1], low_halves(head.dword[0])};
  }

  I32x16 scale(int s) const {
    const I32x16 two = s < 2 ? left_32(high, 4 - 2 * s) : right_32(high, 2 * s - 4);
    const I32x16 four = bits_and(right_32(low, 4 * s), each_dword(15));
    return add(bits_or(bits_and(two, each_dword(0x30)), four), each_dword(-32));
  }

  I32x16 high, low;
  F32x16 d;
};

// The sub-block of a slot, for formats whose stages take the even or the odd 16 bytes in a half of
// the block.
constexpr int interleaved(int stage, int slot) {
  return 8 * (stage / 2) + stage % 2 + 2 * slot;
}

struct Q2_K {
  static constexpr BlockType type = BlockType::q2_k;
  static constexpr std::size_t block_bytes = sizeof(BlockQ2_K);
  static constexpr int largest_q = 3, largest_product = 3 * 15, slots = 4, sub_block = 16;
  static constexpr int exact_run = 16, min_pairs = 8;
  static constexpr bool has_min = true, has_offset = false;
  using Scales = FourBitScales;

  static constexpr int sub_block_of(int stage, int slot) { return interleaved(stage, slot); }
  static constexpr int scaled_up(int s) { return high_bits_in_place ? 1 << (s % 8 / 2 * 2) : 1; }
  static const std::int16_t* min_sums(const BlockA256& a) { return a.sums_of_16; }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales&, Sink& sink) {
    const RowDwords qs = words<Q2_K>(rows, 16 + 16 * stage);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t group = 32 * (stage / 2) + 4 * (stage % 2) + j;
      const I32x16 q = qs.dword[j];
      sink(0, group, field<0>(q));
      sink(1, group + 8, field<2>(q));
      sink(2, group + 16, field<4>(q));
      sink(3, group + 24, field<6>(q));
    }
  }

 private:
  template <int at>
  static I32x16 field(I32x16 q) {
    return move_bits < 2, at, high_bits_in_place ? at : 0 > (q);
  }
};

// The weights q - 4 are unpacked as 8 q - 32, so that their offset is that of Q6_K.
struct Q3_K {
  static constexpr BlockType type = BlockType::q3_k;
  static constexpr std::size_t block_bytes = sizeof(BlockQ3_K);
  static constexpr int largest_q = 56, largest_product = 4 * 32, slots = 4, sub_block = 16;
  static constexpr int exact_run = 16, min_pairs = 0;
  static constexpr bool has_min = false, has_offset = true;
  using Scales = ScalesAndThirdBits;

  static constexpr int sub_block_of(int stage, int slot) { return interleaved(stage, slot); }
  static constexpr int scaled_up(int) { return 8; }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return each_dword(a.minus_32_sums_of_16[s]);
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales& scales, Sink& sink) {
    constexpr int third_at = stage / 2 * 4;
    const RowDwords qs = words<Q3_K>(rows, 32 + 16 * stage);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t group = 32 * (stage / 2) + 4 * (stage % 2) + j;
      const I32x16 q = qs.dword[j], third = scales.hmask[stage % 2].dword[j];
      sink(0, group, bits_or(move_bits<2, 0, 3>(q), move_bits<1, third_at, 5>(third)));
      sink(1, group + 8, bits_or(move_bits<2, 2, 3>(q), move_bits<1, third_at + 1, 5>(third)));
      sink(2, group + 16, bits_or(move_bits<2, 4, 3>(q), move_bits<1, third_at + 2, 5>(third)));
      sink(3, group + 24, bits_or(move_bits<2, 6, 3>(q), move_bits<1, third_at + 3, 5>(third)));
    }
  }
};

struct Q4_K {
  static constexpr BlockType type = BlockType::q4_k;
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_K);
  static constexpr int largest_q = 15, largest_product = 15 * 63, slots = 2, sub_block = 32;
  static constexpr int exact_run = 4, min_pairs = 4;
  static constexpr bool has_min = true, has_offset = false;
  using Scales = SixBitScales;

  static constexpr int sub_block_of(int stage, int slot) { return 2 * stage + slot; }
  static constexpr int scaled_up(int s) { return high_bits_in_place && s % 2 != 0 ? 16 : 1; }
  static const std::int16_t* min_sums(const BlockA256& a) { return a.sums_of_32; }

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
        sink(1, group + 8, high_bits_in_place ? bits_and(q, each_byte(0xf0)) : high_nibbles(q));
      }
    }
  }
};

struct Q5_K {
  static constexpr BlockType type = BlockType::q5_k;
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_K);
  static constexpr int largest_q = 31, largest_product = 31 * 63, slots = 2, sub_block = 32;
  static constexpr int exact_run = 2, min_pairs = 4;
  static constexpr bool has_min = true, has_offset = false;
  using Scales = ScalesAndFifthBits;

  static constexpr int sub_block_of(int stage, int slot) { return 2 * stage + slot; }
  static constexpr int scaled_up(int) { return 1; }
  static const std::int16_t* min_sums(const BlockA256& a) { return a.sums_of_32; }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales& scales, Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const RowDwords qs = words<Q5_K>(rows, 48 + 32 * stage + 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j], fifth = scales.qh[i].dword[j];
        const std::size_t group = 16 * stage + 4 * i + j;
        sink(0, group, bits_or(low_nibbles(q), move_bits<1, 2 * stage, 4>(fifth)));
        sink(1, group + 8, bits_or(high_nibbles(q), move_bits<1, 2 * stage + 1, 4>(fifth)));
      }
    }
  }
};

struct Q6_K {
  static constexpr BlockType type = BlockType::q6_k;
  static constexpr std::size_t block_bytes = sizeof(BlockQ6_K);
  static constexpr int largest_q = 63, largest_product = 32 * 128, slots = 4, sub_block = 16;
  static constexpr int exact_run = 2, min_pairs = 0;
  static constexpr bool has_min = false, has_offset = true;
  using Scales = EightBitScales;

  static constexpr int sub_block_of(int stage, int slot) { return interleaved(stage, slot); }
  static constexpr int scaled_up(int) { return 1; }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return each_dword(a.minus_32_sums_of_16[s]);
  }

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

struct IQ4_XS {
  static constexpr BlockType type = BlockType::iq4_xs;
  static constexpr std::size_t block_bytes = sizeof(BlockIQ4_XS);
  static constexpr int largest_q = 255, largest_product = 127 * 32, slots = 2, sub_block = 32;
  static constexpr int exact_run = 1, min_pairs = 0;
  static constexpr bool has_min = false, has_offset = unsigned_bytes;
  using Scales = SplitScales;

  static constexpr int sub_block_of(int stage, int slot) { return 2 * stage + slot; }
  static constexpr int scaled_up(int) { return 1; }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return each_dword(4 * (a.minus_32_sums_of_16[2 * s] + a.minus_32_sums_of_16[2 * s + 1]));
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights(Rows& rows, const Scales&, Sink& sink) {
    const I32x16 table = byte_table(iq4_table.bytes);
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const std::size_t s = sub_block_of(stage, slot);
      const RowDwords qs = words<IQ4_XS>(rows, 8 + 16 * s);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        sink(slot, 8 * s + j, look_up(table, low_nibbles(qs.dword[j])));
      }
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        sink(slot, 8 * s + 4 + j, look_up(table, high_nibbles(qs.dword[j])));
      }
    }
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
    for (int j = 0; j < Format::min_pairs; ++j) store(out.min[j], scales.min_pair(j));
  }
}

// The scale of a sub-block, divided by the factor of its unpacked weights (scaled_up).
template <typename Format>
inline F32x16 float_scale(const typename Format::Scales& scales, int s) {
  const F32x16 scale = to_float(scales.scale(s));
  const int up = Format::scaled_up(s);
  return up == 1 ? scale : multiply(scale, each(1.0f / static_cast<float>(up)));
}

// The exact sum of scale * dot over the sub-blocks of a block, in any order. Integer products of 32
// bits are slow. Floats are exact too as long as no sum reaches 2^24: for exact_run sub-blocks.
template <typename Format>
class BlockSum {
 public:
  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, F32x16 scale) {
    run_ = multiply_add(to_float(dot), scale, run_);
  }
  // Call it after each exact_run sub-blocks.
  [[gnu::always_inline]] inline void end_run() {
    total_ = add(total_, to_integer(run_));
    run_ = each(0);
  }
  F32x16 total() const { return to_float(total_); }

 private:
  static_assert(Format::exact_run * Format::sub_block * Format::largest_product * 127 < 1 << 24);

  F32x16 run_ = each(0);
  I32x16 total_ = each_dword(0);
};

// The sum over the sub-blocks of each minimum times the sum of its activations.
template <typename Format>
inline I32x16 min_dot(const I32x16 (&min_pairs)[Format::min_pairs], const BlockA256& a) {
  I32x16 dot = each_dword(0);
#pragma GCC unroll 8
  for (int j = 0; j < Format::min_pairs; ++j) {
    dot = add_pair_products(min_pairs[j], each_word_at(Format::min_sums(a) + 2 * j), dot);
  }
  return dot;
}

// The base class of kernels for these formats: the part that unpacks.
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

}  // namespace
}  // namespace sluice::kernels
