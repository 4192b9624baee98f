// Q5_1: 32 weights of five bits, a scale and a minimum.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ5_1 {  // x = d q + m, bits as in Q5_0
  std::uint16_t d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ5_1) == 24);

namespace {

struct Q5_1 {
  using Block = BlockQ5_1;
  static constexpr BlockType type = BlockType::q5_1, fallback = BlockType::f16;
  static constexpr const char* name = "Q5_1";
  static constexpr int weights = 32;
  static constexpr bool has_min = true, can_encode = true;
  static constexpr std::uint32_t file_type = 9;

  static SmallBlock<32> unpack(const Block& b) {
    SmallBlock<32> out{{}, half_to_float(b.d), half_to_float(b.m)};
    for (int k = 0; k < 32; ++k) out.q[k] = nibble(b.qs, k) | bit(b.qh, k) << 4;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 31, sub_block = 32;
  static constexpr bool has_offset = false, is_for_tiles = true;

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return scales_and_minima<Q5_1>(rows);
  }
  template <int, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const I32x16 qh = word<Q5_1>(rows, 4);
    sink_five_bits(words<Q5_1>(rows, 8), qh, sink);
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    encode_affine_row<Block>(31, row);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
