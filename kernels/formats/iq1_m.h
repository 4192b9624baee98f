// IQ1_M: 256 weights in octets, each an index into a grid of 2048, and each with a shift; each 16
// have a scale.
#pragma once

#include "kernels/formats/iq.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ1_M {         // 16 sub-blocks of 16: x = d / 8 (2 scale + 1) (8 value +- 1)
  std::uint8_t qs[32];      // eight bits of the index of each octet
  std::uint8_t qh[16];      // of each octet three upper bits and whether the shift is -1
  std::uint16_t scales[4];  // four of three bits, and four bits of d, the lowest first
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ1_M) == 56);

namespace {

struct IQ1_M : GridPanels<16, iq1_offset> {
  using Block = BlockIQ1_M;
  static constexpr BlockType type = BlockType::iq1_m, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ1_M";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 31;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    int d = 0;
    for (int i = 0; i < 4; ++i) d |= b.scales[i] >> 12 << (4 * i);
    out.d = half_to_float(static_cast<std::uint16_t>(d)) * 0.125f;
    for (int s = 0; s < 16; ++s) out.scale[s] = 2 * (b.scales[s / 4] >> (3 * (s % 4)) & 7) + 1;
    for (int o = 0; o < 32; ++o) {
      const int high = b.qh[o / 2] >> (o % 2 * 4) & 15;
      unpack_iq1(iq1_grid[b.qs[o] | (high & 7) << 8], high & 8 ? -1 : 1, out.q + 8 * o);
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  using Bytes = Iq1Bytes<offset>;
  static constexpr int largest_q = Bytes::largest_q, largest_product = 9 * 15;
  static constexpr int exact_run = 16;

  struct Scales {
    template <typename Format, typename Rows>
    static Scales read(Rows& rows) {
      const auto tail = words<Format>(rows, 40);
      const I32x16 first = tail.dword[2], second = tail.dword[3];
      const auto bits = [](I32x16 x, int mask) { return bits_and(x, each_dword(mask)); };
      const I32x16 d =
          bits_or(bits_or(bits(right_32(first, 12), 0x000f),  //
                          bits(right_32(first, 24), 0x00f0)),
                  bits_or(bits(right_32(second, 4), 0x0f00), bits(right_32(second, 16), 0xf000)));
      return {{first, second}, multiply(low_halves(d), each(0.125f))};
    }
    I32x16 scale(int s) const {
      const int at = 16 * (s / 4 % 2) + 3 * (s % 4);
      const I32x16 x = integers[s / 8];
      const I32x16 doubled = at == 0 ? left_32(x, 1) : right_32(x, at - 1);
      return bits_or(bits_and(doubled, each_dword(14)), each_dword(1));
    }

    I32x16 integers[2];
    F32x16 d;
  };

  static constexpr int grid_entries = 2048, entry_weights = 8;
  static constexpr const std::uint16_t* grid = iq1_grid;
  static int grid_byte(int number, int sign) {
    return Bytes::byte_of(number, sign);
  }

#ifdef SLUICE_HAS_GRID_PRODUCT
  [[gnu::always_inline]] static inline GridGroup<8> grid_group(const PackedRows& rows,
                                                               const Scales&, int s) {
    const I32x16 qh = right_32(word<IQ1_M>(rows, 32 + s / 2 * 4), 16 * (s % 2));
    const I32x16 high = shuffle_bytes<0x01010000>(qh);
    const ByteMask is_minus = has_bits(high, static_cast<int>(0x80088008));
    return {
        {{word<IQ1_M>(rows, 4 * s),
          {has_bits(high, 0x10011001), has_bits(high, 0x20022002), has_bits(high, 0x40044004)}}},
        choose(is_minus, each_byte(255), each_byte(0))};
  }
#endif

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    const auto qs = words<IQ1_M>(rows, 16 * (stage / 2)), qh = words<IQ1_M>(rows, 32);
    constexpr int lower = 0x08080808, upper = static_cast<int>(0x80808080);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const I32x16 q = qs.dword[stage % 2 * 2 + i], high = right_32(qh.dword[stage], 16 * i);
      const I32x16 of_first_two = repeat_byte<0>(high), of_last_two = repeat_byte<1>(high);
      Bytes::sink_four<4>(q, high,
                          {has_bits(of_first_two, lower), has_bits(of_first_two, upper),
                           has_bits(of_last_two, lower), has_bits(of_last_two, upper)},
                          2 * i, 2 * i + 1, 16 * stage + 8 * i, sink);
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    constexpr GridFormat format = {iq1_grid,           2048, 8, iq1_values, 3,
                                   GridSigns::shifted, 16,   8, 8,          0.125f};
    encode_grid_row<Block>(format, row, [](const GridBlock& found, Block& b) {
      for (int o = 0; o < 32; ++o) {
        const int high = found.index[o] >> 8 | found.is_minus[o] << 3;
        b.qs[o] = static_cast<std::uint8_t>(found.index[o]);
        b.qh[o / 2] |= static_cast<std::uint8_t>(high << (o % 2 * 4));
      }
      for (int s = 0; s < 16; ++s) {
        b.scales[s / 4] |= static_cast<std::uint16_t>(found.scale[s] << (s % 4 * 3));
      }
      for (int i = 0; i < 4; ++i) {
        b.scales[i] |= static_cast<std::uint16_t>((found.d >> (4 * i) & 15) << 12);
      }
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
