// Q2_0: 64 weights of two bits and a scale.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ2_0 {  // x = d (q - 1)
  std::uint16_t d;
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ2_0) == 18);

namespace {

// The weights are unpacked as eight times their values, so that their offset is that of Q4_0.
struct Q2_0 {
  using Block = BlockQ2_0;
  static constexpr BlockType type = BlockType::q2_0, fallback = BlockType::q4_0;
  static constexpr const char* name = "Q2_0";
  static constexpr int weights = 64;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 41;

  static SmallBlock<64> unpack(const Block& b) {
    SmallBlock<64> out{{}, half_to_float(b.d) * 0.125f, 0};
    for (int k = 0; k < 64; ++k) out.q[k] = 8 * (b.qs[k / 4] >> (2 * (k % 4)) & 3) - 8;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 24, sub_block = 32;
  static constexpr bool has_offset = true, is_for_tiles = false, unpacks_first = true;
  static constexpr int offset = 8;
  static const std::int32_t* offsets(const BlockA32& a) {
    return a.minus_8_sums;
  }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {multiply(half<Q2_0>(rows), each(0.125f)), each(0)};
  }
  template <int group, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const RowDwords qs = words<Q2_0>(rows, 0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      sink(0, static_cast<std::size_t>(i), times_8(byte_of(qs.dword[2 * group + i / 4], i % 4)));
    }
  }

 private:
  // Eight times the four fields of two bits of a byte, one in each byte.
  [[gnu::always_inline]] static inline I32x16 times_8(I32x16 fields) {
    const auto at = [](I32x16 x, int mask) { return bits_and(x, each_dword(mask)); };
    return bits_or(bits_or(at(left_32(fields, 3), 0x18), at(left_32(fields, 9), 0x1800)),
                   bits_or(at(left_32(fields, 15), 0x180000), at(left_32(fields, 21), 0x18000000)));
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = ternary_scale(x, w, weights);
      const float d = half_to_float(b.d);
      for (int k = 0; k < weights; ++k) {
        b.qs[k / 4] |= static_cast<std::uint8_t>(ternary_code(x[k], d) << (2 * (k % 4)));
      }
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
