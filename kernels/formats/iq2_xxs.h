// IQ2_XXS: 256 weights in octets, each an index into a grid of 256; each 32 have a scale.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ2_XXS {  // 8 sub-blocks of 32: x = d / 8 (2 scale + 1) value
  std::uint16_t d;
  struct {
    std::uint8_t index[4];  // of each octet
    std::uint32_t signs;    // seven of each octet, and in the last four bits the scale
  } groups[8];
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ2_XXS) == 66);

namespace {

struct IQ2_XXS : GridPanels<32, iq2_offset> {
  using Block = BlockIQ2_XXS;
  static constexpr BlockType type = BlockType::iq2_xxs, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ2_XXS";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 19;

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d) * 0.125f;
    for (int s = 0; s < 8; ++s) {
      const std::uint32_t signs = b.groups[s].signs;
      out.scale[s] = static_cast<int>(2 * (signs >> 28) + 1);
      for (int o = 0; o < 4; ++o) {
        unpack_iq2(iq2_xxs_grid[b.groups[s].index[o]],
                   with_eighth_sign(static_cast<int>(signs >> (7 * o) & 127)),
                   out.q + 32 * s + 8 * o);
      }
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  using Bytes = Iq2Bytes<offset>;
  static constexpr int largest_q = Bytes::largest_q, largest_product = 43 * 31;
  static constexpr int exact_run = 2;

  // All words: half of them have a scale.
  struct Scales {
    template <typename Format, typename Rows>
    static Scales read(Rows& rows) {
      return {{words<Format>(rows, 0), words<Format>(rows, 16), words<Format>(rows, 32),
               words<Format>(rows, 48)},
              multiply(half<Format>(rows), each(0.125f))};
    }
    I32x16 scale(int s) const { return odd_scale(groups[s / 2].dword[s % 2 * 2 + 1], 28); }

    RowDwords groups[4];
    F32x16 d;
  };

  static constexpr int grid_entries = 256, entry_weights = 8;
  static constexpr const std::uint16_t* grid = iq2_xxs_grid;
  static constexpr const Octets<grid_entries>& entries = iq2_xxs_octets;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<8> grid_group(const PackedRows&,
                                                               const Scales& scales, int s) {
    const RowDwords& two = scales.groups[s / 2];
    const I32x16 signs = signs_of_octets(two.dword[s % 2 * 2 + 1]);
    return {{{two.dword[s % 2 * 2], {}}}, signs};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows&, const Scales& scales, Sink& sink) {
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const I32x16 index = scales.groups[stage].dword[2 * slot];
      const I32x16 signs =
          with_eighth_signs(spread_bits<7>(scales.groups[stage].dword[2 * slot + 1]));
      Bytes::sink_four<IQ2_XXS>(index, index, signs, slot, slot, 16 * stage + 8 * slot, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq2_xxs_grid,    256, 8, iq2_values, 3,
                                   GridSigns::even, 32,  0, 16,         0.125f};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      b.d = found.d;
      for (int o = 0; o < 32; ++o) {
        auto& group = b.groups[o / 4];
        group.index[o % 4] = static_cast<std::uint8_t>(found.index[o]);
        group.signs |= (found.signs[o] & 127u) << (7 * (o % 4));
      }
      for (int s = 0; s < 8; ++s) b.groups[s].signs |= std::uint32_t{found.scale[s]} << 28;
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
