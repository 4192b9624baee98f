// IQ2_S: 256 weights in octets, each an index into a grid of 1024; each 16 have a scale.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ2_S {  // 16 sub-blocks of 16: x = d / 8 (2 scale + 1) value
  std::uint16_t d;
  std::uint8_t qs[32];     // eight bits of the index of each octet
  std::uint8_t signs[32];  // of each octet
  std::uint8_t qh[8];      // the two upper bits of each index
  std::uint8_t scales[8];  // four bits each, low ones first
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ2_S) == 82);

namespace {

struct IQ2_S : GridPanels<16, iq2_offset> {
  using Block = BlockIQ2_S;
  static constexpr BlockType type = BlockType::iq2_s, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ2_S";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 29;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d) * 0.125f;
    for (int s = 0; s < 16; ++s) out.scale[s] = odd_scale_of(b.scales, s);
    for (int o = 0; o < 32; ++o) {
      const int index = b.qs[o] | (b.qh[o / 4] >> (o % 4 * 2) & 3) << 8;
      unpack_iq2(iq2_s_grid[index], b.signs[o], out.q + 8 * o);
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  using Bytes = Iq2Bytes<offset>;
  static constexpr int largest_q = Bytes::largest_q, largest_product = 43 * 31;
  static constexpr int exact_run = 4;

  struct Scales : SixteenOddScales<72> {
    template <typename Format, typename Rows>
    static Scales read(Rows& rows) {
      const auto tail = words<Format>(rows, 64);
      return {SixteenOddScales<72>::read<Format>(rows), {tail.dword[0], tail.dword[1]}};
    }
    I32x16 qh[2];
  };

  static constexpr int grid_entries = 1024, entry_weights = 8;
  static constexpr const std::uint16_t* grid = iq2_s_grid;
  static constexpr const Octets<grid_entries>& entries = iq2_s_octets;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<8> grid_group(const PackedRows& rows,
                                                               const Scales& scales, int s) {
    const I32x16 high = repeat_byte<0>(right_32(scales.qh[s / 4], 8 * (s % 4)));
    constexpr int odd_bits = static_cast<int>(0x80200802);
    return {{{word<IQ2_S>(rows, 4 * s), {has_bits(high, 0x40100401), has_bits(high, odd_bits)}}},
            word<IQ2_S>(rows, 32 + 4 * s)};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
    const auto qs = words<IQ2_S>(rows, 16 * (stage / 2));
    const auto all_signs = words<IQ2_S>(rows, 32 + 16 * (stage / 2));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const I32x16 q = qs.dword[stage % 2 * 2 + i], signs = all_signs.dword[stage % 2 * 2 + i];
      const I32x16 high = byte_of(scales.qh[stage / 2], stage % 2 * 2 + i);
      Bytes::sink_four<IQ2_S>(q, high, signs, 2 * i, 2 * i + 1, 16 * stage + 8 * i, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq2_s_grid,      1024, 8, iq2_values, 3,
                                   GridSigns::free, 16,   0, 16,         0.125f};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      b.d = found.d;
      for (int o = 0; o < 32; ++o) {
        b.qs[o] = static_cast<std::uint8_t>(found.index[o]);
        b.qh[o / 4] |= static_cast<std::uint8_t>(found.index[o] >> 8 << (o % 4 * 2));
        b.signs[o] = found.signs[o];
      }
      for (int s = 0; s < 16; ++s) set_scale(b.scales, s, found.scale[s]);
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
