// IQ2_XS: 256 weights in octets, each an index into a grid of 512; each 16 have a scale.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ2_XS {  // 16 sub-blocks of 16: x = d / 8 (2 scale + 1) value
  std::uint16_t d;
  std::uint16_t octets[32];  // nine bits of index, seven signs
  std::uint8_t scales[8];    // four bits each, low ones first
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ2_XS) == 74);

namespace {

#ifdef SLUICE_HAS_PANELS

// Sixteen nibbles n that stand for scales of 2 n + 1, in two words at offset `at`.
template <int at>
struct SixteenOddScales {
  template <typename Format, typename Rows>
  static SixteenOddScales read(Rows& rows) {
    const RowDwords tail = words<Format>(rows, at - 8);  // these words may be the last of a block
    return {{tail.dword[2], tail.dword[3]}, multiply(half<Format>(rows), each(0.125f))};
  }
  I32x16 scale(int s) const { return odd_scale(nibbles[s / 8], 4 * (s % 8)); }

  I32x16 nibbles[2];
  F32x16 d;
};

#endif

struct IQ2_XS {
  using Block = BlockIQ2_XS;
  static constexpr BlockType type = BlockType::iq2_xs, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ2_XS";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 20;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d) * 0.125f;
    for (int s = 0; s < 16; ++s) out.scale[s] = 2 * (b.scales[s / 2] >> (s % 2 * 4) & 15) + 1;
    for (int o = 0; o < 32; ++o) {
      unpack_iq2(iq2_xs_grid[b.octets[o] & 511], with_eighth_sign(b.octets[o] >> 9), out.q + 8 * o);
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = Iq2Tables::largest_q, largest_product = 43 * 31;
  static constexpr int slots = 4, sub_block = 16, exact_run = 4, min_pairs = 0;
  static constexpr bool has_offset = true, is_for_tiles = false, unpacks_first = true;
  using Scales = SixteenOddScales<64>;

  static constexpr int sub_block_of(int stage, int slot) {
    return 4 * stage + slot;
  }
  static constexpr int scaled_up(int) {
    return 1;
  }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return offset_product<sub_block, Iq2Tables::offset>(a, s);
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    const RowDwords octets = words<IQ2_XS>(rows, 16 * stage);
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
      const I32x16 two = octets.dword[slot];
      const I32x16 signs = with_eighth_signs(right_16<9>(two));
      const I32x16 entries = look_up_pairs<512>(iq2_xs_grid, bits_and(two, each_dword(0x01ff01ff)));
      const std::size_t group = 16 * stage + 4 * slot;
      Iq2Tables::sink_octet<0, 0>(entries, signs, slot, group, sink);
      Iq2Tables::sink_octet<1, 2>(entries, signs, slot, group + 2, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq2_xs_grid,     512, 8, iq2_values, 3,
                                   GridSigns::even, 16,  0, 16,         0.125f};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      b.d = found.d;
      for (int o = 0; o < 32; ++o) {
        b.octets[o] = static_cast<std::uint16_t>(found.index[o] | (found.signs[o] & 127) << 9);
      }
      for (int s = 0; s < 16; ++s) {
        b.scales[s / 2] |= static_cast<std::uint8_t>(found.scale[s] << (s % 2 * 4));
      }
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
