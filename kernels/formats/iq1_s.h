// IQ1_S: 256 weights in octets, each an index into a grid of 2048; each 32 have a scale and a
// shift.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ1_S {  // 8 sub-blocks of 32: x = d / 8 (2 scale + 1) (8 value +- 1)
  std::uint16_t d;
  std::uint8_t qs[32];  // eight bits of the index of each octet
  // Of each 32 weights: the three upper bits of four indices, a scale of three bits, and whether
  // the shift is -1.
  std::uint16_t qh[8];
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ1_S) == 50);

namespace {

struct IQ1_S : GridPanels<32, iq1_offset> {
  using Block = BlockIQ1_S;
  static constexpr BlockType type = BlockType::iq1_s, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ1_S";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 24;

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d) * 0.125f;
    for (int s = 0; s < 8; ++s) {
      const int high = b.qh[s];
      out.scale[s] = 2 * (high >> 12 & 7) + 1;
      for (int o = 0; o < 4; ++o) {
        const int index = b.qs[4 * s + o] | (high >> (3 * o) & 7) << 8;
        unpack_iq1(iq1_grid[index], high >> 15 ? -1 : 1, out.q + 32 * s + 8 * o);
      }
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  using Bytes = Iq1Bytes<offset>;
  static constexpr int largest_q = Bytes::largest_q, largest_product = 9 * 15;
  static constexpr int exact_run = 8;

  struct Scales {
    template <typename Format, typename Rows>
    static Scales read(Rows& rows) {
      return {words<Format>(rows, 32), multiply(half<Format>(rows), each(0.125f))};
    }
    I32x16 scale(int s) const {
      const I32x16 doubled = right_32(qh.dword[s / 2], 16 * (s % 2) + 11);
      return bits_or(bits_and(doubled, each_dword(14)), each_dword(1));
    }

    RowDwords qh;
    F32x16 d;
  };

  static constexpr int grid_entries = 2048, entry_weights = 8;
  static constexpr const std::uint16_t* grid = iq1_grid;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<8> grid_group(const PackedRows& rows,
                                                               const Scales& scales, int s) {
    const I32x16 high = right_32(scales.qh.dword[s / 2], 16 * (s % 2));
    const I32x16 lower = shuffle_bytes<0x01000000>(high), upper = shuffle_bytes<0x01010000>(high);
    const ByteMask is_minus = has_bits(repeat_byte<1>(high), static_cast<int>(0x80808080));
    return {
        {{word<IQ1_S>(rows, 4 * s),
          {has_bits(lower, 0x02400801), has_bits(lower, 0x04801002), has_bits(upper, 0x08012004)}}},
        choose(is_minus, each_byte(255), each_byte(0))};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
    const auto qs = words<IQ1_S>(rows, 16 * (stage / 2));
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const I32x16 q = qs.dword[stage % 2 * 2 + slot];
      const I32x16 high = right_32(scales.qh.dword[stage], 16 * slot);
      const ByteMask is_minus = has_bits(repeat_byte<1>(high), static_cast<int>(0x80808080));
      Bytes::sink_four<3>(q, high, {is_minus, is_minus, is_minus, is_minus}, slot, slot,
                          16 * stage + 8 * slot, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq1_grid,           2048, 8,  iq1_values, 3,
                                   GridSigns::shifted, 32,   32, 8,          0.125f};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      b.d = found.d;
      for (int s = 0; s < 8; ++s) {
        int high = found.scale[s] << 12 | found.is_minus[4 * s] << 15;
        for (int o = 0; o < 4; ++o) {
          b.qs[4 * s + o] = static_cast<std::uint8_t>(found.index[4 * s + o]);
          high |= found.index[4 * s + o] >> 8 << (3 * o);
        }
        b.qh[s] = static_cast<std::uint16_t>(high);
      }
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
