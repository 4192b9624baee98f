// NVFP4: floats of four bits, with a float of eight bits as the scale of each sixteen.
//
// A tensor may have one more scale, a float for all of a matrix; that is no part of the blocks, but
// a tensor beside it (core/model/weights.h).
#pragma once

#include "kernels/formats/format.h"
#include "kernels/formats/nibble_values.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockNVFP4 {  // x = e2m1[q] ue4m3(e); sixteen weights have the nibbles of eight bytes
  std::uint8_t e[4];
  std::uint8_t qs[32];
};
#pragma pack(pop)
static_assert(sizeof(BlockNVFP4) == 36);

namespace {

// The weights are unpacked doubled, with an offset, as those of MXFP4.
struct NVFP4 {
  using Block = BlockNVFP4;
  static constexpr BlockType type = BlockType::nvfp4, fallback = BlockType::iq4_nl;
  static constexpr const char* name = "NVFP4";
  static constexpr int weights = 64;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 39;

  static FineBlock<64> unpack(const Block& b) {
    FineBlock<64> out;
    for (int s = 0; s < 4; ++s) out.d[s] = half_of_ue4m3(b.e[s]);
    for (int k = 0; k < 64; ++k) {
      const int byte = b.qs[k / 16 * 8 + k % 8];
      out.q[k] = doubled_e2m1[k % 16 < 8 ? byte & 15 : byte >> 4];
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 31, sub_block = 16;
  static constexpr bool has_offset = true, is_for_tiles = false;
  static constexpr int offset = 16;
  static std::int32_t offset_dot(const BlockA32& a, std::size_t at) {
    const std::int32_t first = a.minus_16_sums_of_first_16[at / 2];
    return at % 2 == 0 ? first : a.minus_16_sums[at / 2] - first;
  }
  static constexpr NibbleTable table{doubled_e2m1, offset};

  template <int group, typename Rows>
  static FineScales scales(Rows& rows) {
    const I32x16 e = word<NVFP4>(rows, 0);
    return {{half_scale(bits_and(right_32(e, 16 * group), each_dword(127))),
             half_scale(bits_and(right_32(e, 16 * group + 8), each_dword(127)))}};
  }
  template <int group, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const auto qs = words<NVFP4>(rows, 4 + 16 * group);
    const I32x16 bytes = byte_table(table.bytes);
#pragma GCC unroll 2
    for (std::size_t s = 0; s < 2; ++s) {
      const I32x16 first = qs.dword[2 * s], second = qs.dword[2 * s + 1];
      const int slot = static_cast<int>(s);
      sink(slot, 4 * s, look_up(bytes, low_nibbles(first)));
      sink(slot, 4 * s + 1, look_up(bytes, low_nibbles(second)));
      sink(slot, 4 * s + 2, look_up(bytes, high_nibbles(first)));
      sink(slot, 4 * s + 3, look_up(bytes, high_nibbles(second)));
    }
  }

 private:
  // half_of_ue4m3() of every lane. An exponent of 0 means that of 1 without the leading bit, which
  // is taken off again: no number on the way is subnormal.
  static F32x16 half_scale(I32x16 e) {
    constexpr int exponent_bias = 119, minus_2_to_minus_7 = static_cast<int>(0xbc000000);
    const I32x16 is_small = right_signed_32(add(e, each_dword(-8)), 31);
    const I32x16 is_nan = right_signed_32(left_32(add(e, each_dword(1)), 24), 31);
    const I32x16 normal = add(left_32(e, 20), each_dword(exponent_bias << 23));
    const I32x16 bits = add(normal, bits_and(is_small, each_dword(1 << 23)));
    const I32x16 number = bits_and(bits, bits_xor(is_nan, each_dword(-1)));
    return add(as_floats(number), as_floats(bits_and(is_small, each_dword(minus_2_to_minus_7))));
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_sheets<weights, 16, Block>(row.values, row.columns, row.importance, row.blocks,
                                  encode_sheet);
  }

 private:
  static constexpr int largest_scale = 126;  // 448; 127 is no number

  // The scale next below a number that is not negative.
  static int scale_below(float value) {
    if (value < 0x1p-6f) return static_cast<int>(value * 512);
    if (value >= 448) return largest_scale;
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return static_cast<int>(bits >> 20) - (120 << 3);
  }

  // Tries the scales for which the largest value is a little above the grid, at its end, or as far
  // inside that 4 stands for it.
  static void encode_sheet(const float* x, const Sheet& sheet, int count, Block* blocks) {
    constexpr int tried = 9, below = 2;
    const E2m1Grid grid;
    const LaneArray largest(largest_magnitudes<16>(sheet));
    F32x16 scales[tried], halves[tried], errors[tried];
    for (int t = 0; t < tried; ++t) {
      LaneArray scale, half;
      for (std::size_t i = 0; i < lanes; ++i) {
        const int wanted = scale_below(largest.of[i] / 6) + t - below;
        const int e = wanted < 0 ? 0 : wanted > largest_scale ? largest_scale : wanted;
        scale.of[i] = static_cast<float>(e);
        half.of[i] = half_of_ue4m3(static_cast<std::uint8_t>(e));
      }
      scales[t] = scale.vector();
      halves[t] = half.vector();
    }
    scale_errors<16, tried>(grid, sheet, halves, errors);
    F32x16 best = scales[0], least = errors[0];
    for (int t = 1; t < tried; ++t) {
      best = select_less(errors[t], least, scales[t], best);
      least = select_less(errors[t], least, errors[t], least);
    }
    const LaneArray chosen(best);
    for (int i = 0; i < count; ++i) {
      Block& b = blocks[i / 4];
      const int s = i % 4;
      b.e[s] = static_cast<std::uint8_t>(chosen.of[i]);
      std::uint8_t codes[16];
      choose_codes(grid, x + 16 * i, 16, half_of_ue4m3(b.e[s]), 0, codes);
      for (int j = 0; j < 8; ++j) {
        b.qs[8 * s + j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 8] & 15) << 4);
      }
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
