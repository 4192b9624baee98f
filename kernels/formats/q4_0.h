// Q4_0: 32 weights of four bits and a scale.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ4_0 {  // x[j] = d (lo(qs[j]) - 8), x[j+16] = d (hi(qs[j]) - 8)
  std::uint16_t d;
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ4_0) == 18);

namespace {

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr BlockType type = BlockType::q4_0, fallback = BlockType::f16;
  static constexpr const char* name = "Q4_0";
  static constexpr int weights = 32;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 2;

  static SmallBlock<32> unpack(const Block& b) {
    SmallBlock<32> out{{}, half_to_float(b.d), 0};
    for (int k = 0; k < 32; ++k) out.q[k] = nibble(b.qs, k) - 8;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 15, sub_block = 32;
  static constexpr bool has_offset = true, is_for_tiles = true;
  static constexpr int offset = 8;
  static const std::int32_t* offsets(const BlockA32& a) {
    return a.minus_8_sums;
  }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<Q4_0>(rows), each(0)};
  }
  template <int, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    sink_nibbles(words<Q4_0>(rows, 0), sink);
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    encode_scaled_row<Block>(UniformGrid{-8, 7}, row);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
