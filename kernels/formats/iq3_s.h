// IQ3_S: 256 weights in quads, each an index into a grid of 512; each 32 have a scale.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ3_S {  // 8 sub-blocks of 32: x = d (2 scale + 1) value
  std::uint16_t d;
  std::uint8_t qs[64];     // eight bits of the index of each quad
  std::uint8_t qh[8];      // the ninth bits
  std::uint8_t signs[32];  // of each octet
  std::uint8_t scales[4];  // four bits each, low ones first
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ3_S) == 110);

namespace {

struct IQ3_S : GridPanels<32, 16> {
  using Block = BlockIQ3_S;
  static constexpr BlockType type = BlockType::iq3_s, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ3_S";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 26;

  static constexpr int values[8] = {1, 3, 5, 7, 9, 11, 13, 15};

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d);
    for (int s = 0; s < 8; ++s) out.scale[s] = odd_scale_of(b.scales, s);
    for (int o = 0; o < 32; ++o) {
      const int first = b.qs[2 * o] | bit(b.qh, 2 * o) << 8;
      const int second = b.qs[2 * o + 1] | bit(b.qh, 2 * o + 1) << 8;
      unpack_iq3(values, iq3_s_grid[first], iq3_s_grid[second], b.signs[o], out.q + 8 * o);
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_product = 15 * 31;
  static constexpr int exact_run = 8;
  using Bytes = Iq3Bytes<values, offset>;
  static constexpr int largest_q = Bytes::largest_q;

  struct Scales {
    template <typename Format, typename Rows>
    static Scales read(Rows& rows) {
      const auto middle = words<Format>(rows, 64), tail = words<Format>(rows, 92);
      return {{middle.dword[0], middle.dword[1]}, tail.dword[3], half<Format>(rows)};
    }
    I32x16 scale(int s) const { return odd_scale(nibbles, 4 * s); }

    I32x16 qh[2], nibbles;
    F32x16 d;
  };

  static constexpr int grid_entries = 512, entry_weights = 4;
  static constexpr const std::uint16_t* grid = iq3_s_grid;
  static constexpr const Quads<grid_entries>& entries = iq3_s_quads;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<4> grid_group(const PackedRows& rows,
                                                               const Scales& scales, int s) {
    const I32x16 high = repeat_byte<0>(right_32(scales.qh[s / 4], 8 * (s % 4)));
    return {{{word<IQ3_S>(rows, 8 * s), {has_bits(high, first_four)}},
             {word<IQ3_S>(rows, 8 * s + 4), {has_bits(high, last_four)}}},
            word<IQ3_S>(rows, 72 + 4 * s)};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
    // Words are read by four: those of the last two signs begin in the middle.
    constexpr int signs_at = stage < 3 ? 72 + 8 * stage : 88, first_sign = stage < 3 ? 0 : 2;
    // All are loaded at once: i8mm would take 16 % more instructions for many columns.
    const RowDwords qs = words<IQ3_S>(rows, 16 * stage);
    const RowDwords signs = words<IQ3_S>(rows, signs_at);
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const int s = sub_block_of(stage, slot);
      const I32x16 high = byte_of(scales.qh[s / 4], s % 4);
      const I32x16 of_slot = signs.dword[first_sign + slot];
      Bytes::template sink_four<IQ3_S, 0>(qs.dword[2 * slot], high, of_slot, slot, 8 * s, sink);
      Bytes::template sink_four<IQ3_S, 2>(qs.dword[2 * slot + 1], right_32(high, 4), of_slot, slot,
                                          8 * s + 4, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq3_s_grid, 512, 4, values, 8, GridSigns::free, 32, 0, 16, 1};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      b.d = found.d;
      for (int q = 0; q < 64; ++q) {
        b.qs[q] = static_cast<std::uint8_t>(found.index[q]);
        b.qh[q / 8] |= static_cast<std::uint8_t>(found.index[q] >> 8 << q % 8);
      }
      for (int o = 0; o < 32; ++o) b.signs[o] = found.signs[o];
      for (int s = 0; s < 8; ++s) set_scale(b.scales, s, found.scale[s]);
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
