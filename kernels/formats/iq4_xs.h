// IQ4_XS: 256 nibbles that stand for sixteen values; each 32 have a scale of six bits.
#pragma once

#include "kernels/formats/iq4_nl.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ4_XS {  // 8 sub-blocks of 32: x = d (scale - 32) iq4_values[q]
  std::uint16_t d;
  std::uint16_t scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ4_XS) == 136);

namespace {

#ifdef SLUICE_HAS_PANELS

// The 6-bit scales of IQ4_XS: four bits of each in one word, two in the upper half of another.
struct SplitScales {
  template <typename Format, typename Rows>
  static SplitScales read(Rows& rows) {
    const auto head = words<Format>(rows, 0);
    return {right_32(head.dword[0], 16), head.dword[1], low_halves(head.dword[0])};
  }

  I32x16 scale(int s) const {
    const I32x16 two = s < 2 ? left_32(high, 4 - 2 * s) : right_32(high, 2 * s - 4);
    const I32x16 four = bits_and(right_32(low, 4 * s), each_dword(15));
    return add(bits_or(bits_and(two, each_dword(0x30)), four), each_dword(-32));
  }

  I32x16 high, low;
  F32x16 d;
};

#endif

struct IQ4_XS {
  using Block = BlockIQ4_XS;
  static constexpr BlockType type = BlockType::iq4_xs, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "IQ4_XS";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 30;

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d);
    for (int s = 0; s < 8; ++s) {
      const int low = b.scales_l[s / 2] >> (s % 2 * 4) & 15, high = b.scales_h >> (2 * s) & 3;
      out.scale[s] = (low | high << 4) - 32;
      for (int k = 0; k < 32; ++k) out.q[32 * s + k] = iq4_values[nibble(b.qs + 16 * s, k)];
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 255, largest_product = 127 * 32, slots = 2, sub_block = 32;
  static constexpr int exact_run = 1, min_pairs = 0;
  static constexpr bool has_offset = unsigned_bytes, is_for_tiles = false;
  using Scales = SplitScales;

  static constexpr int sub_block_of(int stage, int slot) {
    return 2 * stage + slot;
  }
  static constexpr int scaled_up(int) {
    return 1;
  }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return each_dword(4 * (a.minus_32_sums_of_16[2 * s] + a.minus_32_sums_of_16[2 * s + 1]));
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    const I32x16 table = byte_table(IQ4_NL::table.bytes);
#pragma GCC unroll 2
    for (int slot = 0; slot < slots; ++slot) {
      const std::size_t s = sub_block_of(stage, slot);
      const auto qs = words<IQ4_XS>(rows, 8 + 16 * s);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        sink(slot, 8 * s + j, look_up(table, low_nibbles(qs.dword[j])));
      }
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        sink(slot, 8 * s + 4 + j, look_up(table, high_nibbles(qs.dword[j])));
      }
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    const Iq4Grid grid;
    by_blocks_of_256<Block, 32>(row, [&](const float* x, const Sheet& sheet, int count, Block* b) {
      encode_sheet(grid, x, sheet, count, b);
    });
  }

 private:
  static void encode_sheet(const Iq4Grid& grid, const float* x, const Sheet& sheet, int count,
                           Block* blocks) {
    const ScaledBlocks found = find_scales<32>(grid, sheet, -32, 31);
    const LaneArray d(found.d), integers(found.integer);
    for (int i = 0; i < count / 8; ++i) {
      Block& b = blocks[i];
      b.d = float_to_half(d.of[8 * i]);
      unsigned high = 0;
      unsigned low[4] = {};
      for (int j = 0; j < 8; ++j) {
        const float integer = integers.of[8 * i + j];
        const auto stored = static_cast<unsigned>(static_cast<int>(integer) + 32);
        low[j / 2] |= (stored & 15) << (j % 2 * 4);
        high |= (stored >> 4) << (2 * j);
        std::uint8_t codes[32];
        choose_codes(grid, x + 256 * i + 32 * j, 32, d.of[8 * i] * integer, 0, codes);
        pack_nibbles(codes, b.qs + 16 * j);
      }
      b.scales_h = static_cast<std::uint16_t>(high);
      for (int j = 0; j < 4; ++j) b.scales_l[j] = static_cast<std::uint8_t>(low[j]);
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
