// Q2_0 and PQ2_0: 64 and 128 weights of two bits, and a scale.
#pragma once

#include "kernels/formats/one_scale.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ2_0 {  // x = d (q - 1)
  std::uint16_t d;
  std::uint8_t qs[16];
};
struct BlockPQ2_0 {  // the same
  std::uint16_t d;
  std::uint8_t qs[32];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ2_0) == 18 && sizeof(BlockPQ2_0) == 34);

namespace {

// What both have alike.
template <typename Format, typename BlockOfFormat>
struct TwoBitFormat : EighthsPanels<Format> {
  using Block = BlockOfFormat;
  static constexpr BlockType fallback = BlockType::q4_0;
  static constexpr int weights = 4 * sizeof(Block::qs);
  static constexpr bool has_min = false, can_encode = true;

  static SmallBlock<weights> unpack(const Block& b) {
    SmallBlock<weights> out{{}, half_to_float(b.d) * 0.125f, 0};
    for (int k = 0; k < weights; ++k) out.q[k] = 8 * (b.qs[k / 4] >> (2 * (k % 4)) & 3) - 8;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 24;

  template <int group, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const RowDwords qs = words<Format>(rows, 16 * (group / 2));
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const I32x16 fields = byte_of(qs.dword[2 * (group % 2) + i / 4], i % 4);
      sink(0, static_cast<std::size_t>(i), times_8(fields));
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
 public:
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

struct Q2_0 : TwoBitFormat<Q2_0, BlockQ2_0> {
  static constexpr BlockType type = BlockType::q2_0;
  static constexpr const char* name = "Q2_0";
  static constexpr std::uint32_t file_type = 41;
};

struct PQ2_0 : TwoBitFormat<PQ2_0, BlockPQ2_0> {
  static constexpr BlockType type = BlockType::pq2_0;
  static constexpr const char* name = "PQ2_0";
  static constexpr std::uint32_t file_type = 142;
};

}  // namespace
}  // namespace sluice::kernels
