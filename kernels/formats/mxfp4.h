// MXFP4 (OCP microscaling): 32 floats of four bits, and a power of two as their scale.
#pragma once

#include "kernels/formats/format.h"
#include "kernels/formats/nibble_values.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockMXFP4 {  // x = e2m1[q] 2^(e - 127)
  std::uint8_t e;
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockMXFP4) == 17);

namespace {

// The weights are unpacked doubled, between -12 and 12; with an offset they fit into five bits.
struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr BlockType type = BlockType::mxfp4, fallback = BlockType::f16;
  static constexpr const char* name = "MXFP4";
  static constexpr int weights = 32;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 38;

  static SmallBlock<32> unpack(const Block& b) {
    SmallBlock<32> out{{}, half_of_e8m0(b.e), 0};
    for (int k = 0; k < 32; ++k) out.q[k] = doubled_e2m1[nibble(b.qs, k)];
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 31, sub_block = 32;
  static constexpr bool has_offset = true, is_for_tiles = false;
  static constexpr int offset = 16;
  static const std::int32_t* offsets(const BlockA32& a) {
    return a.minus_16_sums;
  }
  static constexpr NibbleTable table{doubled_e2m1, offset};

  // 2^(e - 128), as a product of two powers. These are never subnormal; the smallest results are.
  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    const auto power = [](I32x16 n) {  // 2^(n - 64)
      return as_floats(left_32(add(n, each_dword(127 - 64)), 23));
    };
    const I32x16 e = odd_byte<MXFP4>(rows);
    return {multiply(power(right_32(e, 1)), power(right_32(add(e, each_dword(1)), 1))), each(0)};
  }
  template <int, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    sink_looked_up(words<MXFP4>(rows, 0), table, sink);
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks_of_32<Block>(row, encode_sheet);
  }

 private:
  // The exponent whose scale puts `largest` in [4, 8), as the largest value of E2M1 is 1.5 * 2^2; 0
  // if that exponent would be negative.
  static int wanted_exponent(float largest) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &largest, sizeof bits);
    const int exponent = static_cast<int>(bits >> 23) - 2;
    return exponent < 0 ? 0 : exponent;
  }

  // With larger exponents the largest value of E2M1 times the scale overflows a float.
  static constexpr int exponent_max = 252;

  // Tries the power of two that fits the largest value, and its two neighbours.
  static void encode_sheet(const float* x, const Sheet& sheet, int count, Block* blocks) {
    const E2m1Grid grid;
    const LaneArray largest(largest_magnitudes<32>(sheet));
    LaneArray chosen;
    F32x16 exponent = zero(), least = broadcast(INFINITY);
    for (const int step : {-1, 0, 1}) {
      LaneArray halves, exponents, squares;
      for (std::size_t i = 0; i < lanes; ++i) {
        const int wanted = wanted_exponent(largest.of[i]);
        const int next = wanted + step;
        const int e = next < 0 ? 0 : next > exponent_max ? exponent_max : next;
        exponents.of[i] = static_cast<float>(e);
        halves.of[i] = half_of_e8m0(static_cast<std::uint8_t>(e));
        squares.of[i] = e < wanted ? 0.25f : e > wanted ? 4.0f : 1.0f;
      }
      F32x16 error = zero();  // in units in which no square overflows
      for (int k = 0; k < 32; ++k) {
        const F32x16 y = load(sheet.x[k], lanes) / halves.vector();
        const F32x16 rest = y - grid.nearest(y);
        error = error + load(sheet.w[k], lanes) * rest * rest;
      }
      error = error * squares.vector();
      exponent = select_less(error, least, exponents.vector(), exponent);
      least = select_less(error, least, error, least);
    }
    store(exponent, chosen.of, lanes);
    for (int i = 0; i < count; ++i) {
      Block& b = blocks[i];
      b.e = largest.of[i] > 0 ? static_cast<std::uint8_t>(chosen.of[i]) : std::uint8_t{0};
      const F32x16 half = broadcast(half_of_e8m0(b.e));
      std::uint8_t codes[32];
      for (std::size_t k = 0; k < 32; k += lanes) {
        store(grid.code(load(x + 32 * i + k, lanes) / half),
              reinterpret_cast<std::int8_t*>(codes + k));
      }
      pack_nibbles(codes, b.qs);
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
