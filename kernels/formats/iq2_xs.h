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

struct IQ2_XS : GridPanels<16, iq2_offset> {
  using Block = BlockIQ2_XS;
  static constexpr BlockType type = BlockType::iq2_xs, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ2_XS";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 20;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d) * 0.125f;
    for (int s = 0; s < 16; ++s) out.scale[s] = odd_scale_of(b.scales, s);
    for (int o = 0; o < 32; ++o) {
      unpack_iq2(iq2_xs_grid[b.octets[o] & 511], with_eighth_sign(b.octets[o] >> 9), out.q + 8 * o);
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  using Bytes = Iq2Bytes<offset>;
  static constexpr int largest_q = Bytes::largest_q, largest_product = 43 * 31;
  static constexpr int exact_run = 4;
  using Scales = SixteenOddScales<64>;

  static constexpr int grid_entries = 512, entry_weights = 8;
  static constexpr const std::uint16_t* grid = iq2_xs_grid;
  static constexpr const Octets<grid_entries>& entries = iq2_xs_octets;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<8> grid_group(const PackedRows& rows,
                                                               const Scales&, int s) {
    const I32x16 first = word<IQ2_XS>(rows, 8 * s), last = word<IQ2_XS>(rows, 8 * s + 4);
    const I32x16 high = odd_bytes(first, last);  // a bit of the index, then seven signs
    return {{{even_bytes(first, last), {has_bits(high, 0x01010101)}}},
            signs_of_sevens(right_16<1>(high))};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    const auto octets = words<IQ2_XS>(rows, 16 * stage);
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
      const I32x16 two = octets.dword[slot];
      const I32x16 signs = with_eighth_signs(right_16<9>(two));
      Bytes::sink_two<IQ2_XS>(bits_and(two, each_dword(0x01ff01ff)), signs, slot,
                              16 * stage + 4 * slot, sink);
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
      for (int s = 0; s < 16; ++s) set_scale(b.scales, s, found.scale[s]);
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
