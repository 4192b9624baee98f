// Q3_K: 256 weights of three bits; each 16 have a scale of six bits.
#pragma once

#include "kernels/formats/q2_k.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ3_K {  // 16 sub-blocks of 16: x = d (scale - 32) q, q in -4..3
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  std::uint16_t d;
};
#pragma pack(pop)
static_assert(sizeof(BlockQ3_K) == 110);

namespace {

#ifdef SLUICE_HAS_PANELS

// The 6-bit scales of Q3_K, as signed numbers, and the third bits of its weights.
struct ScalesAndThirdBits {
  template <typename Format, typename Rows>
  static ScalesAndThirdBits read(Rows& rows) {
    const auto tail = words<Format>(rows, 92);
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
#ifdef SLUICE_SUMS_WORDS
  // The scales of two sub-blocks, as 16-bit pairs: (0 2) (1 3) (4 6) (5 7) and so on.
  I32x16 scale_pair(int j) const {
    const I32x16 four = scales[j / 2];
    return right_signed_16<10>(j % 2 != 0 ? left_16<2>(four) : left_16<10>(four));
  }
#endif

  I32x16 scales[4];
  RowDwords hmask[2];
  F32x16 d;
};

#endif

struct Q3_K {
  using Block = BlockQ3_K;
  static constexpr BlockType type = BlockType::q3_k, fallback = BlockType::q4_0;
  static constexpr const char* name = "Q3_K";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 12;
  static constexpr bool is_odd_at_end = true;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d);
    for (int s = 0; s < 16; ++s) {
      const int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
      const int high = b.scales[8 + s % 4] >> (s / 4 * 2) & 3;
      out.scale[s] = (low | high << 4) - 32;
    }
    for (int k = 0; k < 256; ++k) {
      const int third = b.hmask[k % 32] >> (k / 32) & 1;
      out.q[k] = (two_bits(b.qs, k) | third << 2) - 4;
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  // The weights q - 4 are unpacked as 8 q - 32, so that their offset is that of Q6_K.
  static constexpr int largest_q = 56, largest_product = 4 * 32, slots = 4, sub_block = 16;
  static constexpr int exact_run = 16, min_pairs = 0, offset = 32;
  static constexpr bool has_offset = true, is_for_tiles = false;
  using Scales = ScalesAndThirdBits;

  static constexpr int sub_block_of(int stage, int slot) {
    return interleaved(stage, slot);
  }
  static constexpr int scaled_up(int) {
    return 8;
  }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return each_dword(a.minus_32_sums_of_16[s]);
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
    constexpr int third_at = stage / 2 * 4;
    const auto qs = words<Q3_K>(rows, 32 + 16 * stage);
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
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks_of_256<Block, 16>(row, encode_sheet);
  }

 private:
  static void encode_sheet(const float* x, const Sheet& sheet, int, Block* blocks) {
    constexpr UniformGrid grid{-4, 3};
    const ScaledBlocks found = find_scales<16>(grid, sheet, -32, 31);
    const LaneArray d(found.d), integers(found.integer);
    Block& b = *blocks;  // a sheet has one
    b = {};
    b.d = float_to_half(d.of[0]);
    for (int s = 0; s < 16; ++s) {
      const int scale = static_cast<int>(integers.of[s]) + 32;
      b.scales[s % 8] |= static_cast<std::uint8_t>((scale & 15) << (s < 8 ? 0 : 4));
      b.scales[8 + s % 4] |= static_cast<std::uint8_t>(scale >> 4 << (s / 4 * 2));
      std::uint8_t codes[16];
      choose_codes(grid, x + 16 * s, 16, d.of[0] * integers.of[s], 0, codes);
      for (int j = 0; j < 16; ++j) {
        const int k = 16 * s + j;
        set_two_bits(b.qs, k, codes[j] & 3);
        b.hmask[k % 32] |= static_cast<std::uint8_t>(codes[j] >> 2 << (k / 32));
      }
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
