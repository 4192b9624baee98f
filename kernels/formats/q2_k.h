// Q2_K: 256 weights of two bits; each 16 have a scale and a minimum of four bits.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ2_K {  // 16 sub-blocks of 16: x = d (scales & 15) q - dmin (scales >> 4)
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  std::uint16_t d, dmin;
};
#pragma pack(pop)
static_assert(sizeof(BlockQ2_K) == 84);

namespace {

// Where Q2_K and Q3_K have weight k: in one of the four 2-bit fields of a byte.
inline int two_bits(const std::uint8_t* qs, int k) {
  return qs[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3;
}
// Puts the two bits of a weight there, where zeros are.
inline void set_two_bits(std::uint8_t* qs, int k, int bits) {
  qs[k / 128 * 32 + k % 32] |= static_cast<std::uint8_t>(bits << (k % 128 / 32 * 2));
}

#ifdef SLUICE_HAS_PANELS

// d, dmin and the 4-bit scales and minima of Q2_K.
struct FourBitScales {
  template <typename Format, typename Rows>
  static FourBitScales read(Rows& rows) {
    const auto head = words<Format>(rows, 0);
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

#endif

struct Q2_K {
  using Block = BlockQ2_K;
  static constexpr BlockType type = BlockType::q2_k, fallback = BlockType::q4_0;
  static constexpr const char* name = "Q2_K";
  static constexpr int weights = 256;
  static constexpr bool has_min = true, can_encode = true;
  static constexpr std::uint32_t file_type = 10;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d);
    out.dmin = half_to_float(b.dmin);
    for (int s = 0; s < 16; ++s) {
      out.scale[s] = b.scales[s] & 15;
      out.min[s] = b.scales[s] >> 4;
    }
    for (int k = 0; k < 256; ++k) out.q[k] = two_bits(b.qs, k);
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 3, largest_product = 3 * 15, slots = 4, sub_block = 16;
  static constexpr int exact_run = 16, min_pairs = 8;
  static constexpr bool has_offset = false, is_for_tiles = false;
  using Scales = FourBitScales;

  static constexpr int sub_block_of(int stage, int slot) {
    return interleaved(stage, slot);
  }
  static constexpr int scaled_up(int s) {
    return high_bits_in_place ? 1 << (s % 8 / 2 * 2) : 1;
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    const auto qs = words<Q2_K>(rows, 16 + 16 * stage);
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
    return move_bits < 2, at, high_bits_in_place ? at : 0 > (q);  // NOLINT(bugprone-branch-clone)
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks_of_256<Block, 16>(row, encode_sheet);
  }

 private:
  static void encode_sheet(const float* x, const Sheet& sheet, int, Block* blocks) {
    const AffineBlocks found = find_pairs<16>(sheet, {3, 15});
    const LaneArray d(found.d), dmin(found.dmin), scales(found.scale), mins(found.min_);
    Block& b = *blocks;  // a sheet has one
    b = {};
    b.d = float_to_half(d.of[0]);
    b.dmin = float_to_half(dmin.of[0]);
    for (int s = 0; s < 16; ++s) {
      const int scale = static_cast<int>(scales.of[s]), min = static_cast<int>(mins.of[s]);
      b.scales[s] = static_cast<std::uint8_t>(scale | min << 4);
      std::uint8_t codes[16];
      choose_codes(UniformGrid{0, 3}, x + 16 * s, 16, d.of[0] * scales.of[s],
                   -dmin.of[0] * mins.of[s], codes);
      for (int k = 0; k < 16; ++k) set_two_bits(b.qs, 16 * s + k, codes[k]);
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
