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

// Unpacks 8 weights of IQ3 from two entries.
inline void unpack_iq3(const int (&values)[8], std::uint16_t first, std::uint16_t second, int signs,
                       int* q) {
  for (int i = 0; i < 8; ++i) {
    const int number = number_of_4(i < 4 ? first : second, i % 4);
    q[i] = negative_if(values[number], signs >> i & 1);
  }
}

#ifdef SLUICE_HAS_PANELS

// The bytes of weights of IQ3.
template <const int (&values)[8], int offset>
struct Iq3Tables {
  static constexpr NibbleTable plus = table_of(values, NumberAt::nibble, 1, offset);
  static constexpr NibbleTable minus = table_of(values, NumberAt::nibble, -1, offset);

  // Sinks the 8 weights of the entries in a half of the lanes of both; byte `byte` of `signs` has
  // their signs.
  template <int half, int byte, typename Sink>
  [[gnu::always_inline]] static inline void sink_octet(I32x16 first, I32x16 second, I32x16 signs,
                                                       int slot, std::size_t group, Sink& sink) {
    const I32x16 of_octet = repeat_byte<byte>(signs);
    const I32x16 of_plus = byte_table(plus.bytes), of_minus = byte_table(minus.bytes);
    sink(slot, group,
         look_up_either(of_plus, of_minus, spread_nibbles<half>(first),
                        has_bits(of_octet, 0x08040201)));
    sink(slot, group + 1,
         look_up_either(of_plus, of_minus, spread_nibbles<half>(second),
                        has_bits(of_octet, static_cast<int>(0x80402010))));
  }
};

#endif

struct IQ3_XXS {
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
  static constexpr int offset = 64, largest_q = 62 + offset, largest_product = 62 * 31;
  static constexpr int slots = 2, sub_block = 32, exact_run = 2, min_pairs = 0;
  static constexpr bool has_offset = true, is_for_tiles = false, unpacks_first = true;
  using Tables = Iq3Tables<values, offset>;

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

  static constexpr int sub_block_of(int stage, int slot) {
    return 2 * stage + slot;
  }
  static constexpr int scaled_up(int) {
    return 1;
  }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return offset_product<sub_block, offset>(a, s);
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
    const RowDwords index = words<IQ3_XXS>(rows, 16 * stage);
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const int s = sub_block_of(stage, slot);
      const I32x16 signs = with_eighth_signs(spread_sevens(scales.signs[s / 4].dword[s % 4]));
      sink_quads<0>(index.dword[2 * slot], signs, slot, 8 * s, sink);
      sink_quads<2>(index.dword[2 * slot + 1], signs, slot, 8 * s + 4, sink);
    }
  }

 private:
  // Sinks the 16 weights of four quads; their signs begin with byte `byte`.
  template <int byte, typename Sink>
  [[gnu::always_inline]] static inline void sink_quads(I32x16 index, I32x16 signs, int slot,
                                                       std::size_t group, Sink& sink) {
    const I32x16 even = look_up_pairs<256>(iq3_xxs_grid, bits_and(index, each_dword(0x00ff00ff)));
    const I32x16 odd =
        look_up_pairs<256>(iq3_xxs_grid, bits_and(right_32(index, 8), each_dword(0x00ff00ff)));
    Tables::template sink_octet<0, byte>(even, odd, signs, slot, group, sink);
    Tables::template sink_octet<1, byte + 1>(even, odd, signs, slot, group + 2, sink);
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
