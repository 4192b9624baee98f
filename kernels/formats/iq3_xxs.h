// IQ3_XXS: 256 weights in quads, each an index into a grid of 256; each 32 have a scale.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ3_XXS {  // 8 sub-blocks of 32: x = d / 4 (2 scale + 1) value
  std::uint16_t d;
  std::uint8_t index[64];  // of each quad
  std::uint32_t
      signs[8];  // of each 32 weights, seven of each octet; in the last four bits the scale
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ3_XXS) == 98);

namespace {

struct IQ3_XXS : GridPanels<32, 64> {
  using Block = BlockIQ3_XXS;
  static constexpr BlockType type = BlockType::iq3_xxs, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ3_XXS";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 23;

  static constexpr int values[8] = {4, 12, 20, 28, 36, 44, 52, 62};

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d) * 0.25f;
    for (int s = 0; s < 8; ++s) {
      out.scale[s] = static_cast<int>(2 * (b.signs[s] >> 28) + 1);
      for (int o = 0; o < 4; ++o) {
        const std::uint8_t* index = b.index + 8 * s + 2 * o;
        unpack_iq3(values, iq3_xxs_grid[index[0]], iq3_xxs_grid[index[1]],
                   with_eighth_sign(static_cast<int>(b.signs[s] >> (7 * o) & 127)),
                   out.q + 32 * s + 8 * o);
      }
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_product = 62 * 31;
  static constexpr int exact_run = 2;
  using Bytes = Iq3Bytes<values, offset>;
  static constexpr int largest_q = Bytes::largest_q;

  struct Scales {
    template <typename Format, typename Rows>
    static Scales read(Rows& rows) {
      return {{words<Format>(rows, 64), words<Format>(rows, 80)},
              multiply(half<Format>(rows), each(0.25f))};
    }
    I32x16 scale(int s) const { return odd_scale(signs[s / 4].dword[s % 4], 28); }

    RowDwords signs[2];
    F32x16 d;
  };

  static constexpr int grid_entries = 256, entry_weights = 4;
  static constexpr const std::uint16_t* grid = iq3_xxs_grid;
  static constexpr const Quads<grid_entries>& entries = iq3_xxs_quads;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<4> grid_group(const PackedRows& rows,
                                                               const Scales& scales, int s) {
    return {{{word<IQ3_XXS>(rows, 8 * s), {}}, {word<IQ3_XXS>(rows, 8 * s + 4), {}}},
            signs_of_octets(scales.signs[s / 4].dword[s % 4])};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
    const auto index = words<IQ3_XXS>(rows, 16 * stage);
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const int s = sub_block_of(stage, slot);
      const I32x16 signs = with_eighth_signs(spread_bits<7>(scales.signs[s / 4].dword[s % 4]));
      const I32x16 first = index.dword[2 * slot], second = index.dword[2 * slot + 1];
      Bytes::template sink_four<IQ3_XXS, 0>(first, first, signs, slot, 8 * s, sink);
      Bytes::template sink_four<IQ3_XXS, 2>(second, second, signs, slot, 8 * s + 4, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq3_xxs_grid,    256, 4, values, 8,
                                   GridSigns::even, 32,  0, 16,     0.25f};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      b.d = found.d;
      for (int q = 0; q < 64; ++q) b.index[q] = static_cast<std::uint8_t>(found.index[q]);
      for (int o = 0; o < 32; ++o) b.signs[o / 4] |= (found.signs[o] & 127u) << (7 * (o % 4));
      for (int s = 0; s < 8; ++s) b.signs[s] |= std::uint32_t{found.scale[s]} << 28;
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
