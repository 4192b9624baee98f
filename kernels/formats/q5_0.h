// Q5_0: 32 weights of five bits and a scale.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ5_0 {  // x = d (q - 16); bit j of qh is the fifth bit of element j
  std::uint16_t d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ5_0) == 22);

namespace {

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr BlockType type = BlockType::q5_0, fallback = BlockType::f16;
  static constexpr const char* name = "Q5_0";
  static constexpr int weights = 32;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 8;

  static SmallBlock<32> unpack(const Block& b) {
    SmallBlock<32> out{{}, half_to_float(b.d), 0};
    for (int k = 0; k < 32; ++k) out.q[k] = (nibble(b.qs, k) | bit(b.qh, k) << 4) - 16;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 31, sub_block = 32;
  static constexpr bool has_offset = true, is_for_tiles = true;
  static constexpr int offset = 16;
  static const std::int32_t* offsets(const BlockA32& a) {
    return a.minus_16_sums;
  }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<Q5_0>(rows), each(0)};
  }
  template <int, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const I32x16 qh = word<Q5_0>(rows, 0);
    sink_five_bits(words<Q5_0>(rows, 4), qh, sink);
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    encode_scaled_row<Block>(UniformGrid{-16, 15}, row);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
