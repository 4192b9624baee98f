// IQ4_NL: 32 nibbles that stand for sixteen values, and a scale.
#pragma once

#include "kernels/formats/format.h"
#include "kernels/formats/nibble_values.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockIQ4_NL {  // x = d iq4_values[q], nibbles as in Q4_0
  std::uint16_t d;
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockIQ4_NL) == 18);

namespace {

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr BlockType type = BlockType::iq4_nl, fallback = BlockType::f16;
  static constexpr const char* name = "IQ4_NL";
  static constexpr int weights = 32;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 25;

  static SmallBlock<32> unpack(const Block& b) {
    SmallBlock<32> out{{}, half_to_float(b.d), 0};
    for (int k = 0; k < 32; ++k) out.q[k] = iq4_values[nibble(b.qs, k)];
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 255, sub_block = 32;
  static constexpr bool has_offset = unsigned_bytes, is_for_tiles = false;
  static constexpr int offset = 128;
  static const std::int32_t* offsets(const BlockA32& a) {
    return a.minus_128_sums;
  }
  static constexpr NibbleTable table{iq4_values, unsigned_bytes ? offset : 0};

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<IQ4_NL>(rows), each(0)};
  }
  template <int, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    sink_looked_up(words<IQ4_NL>(rows, 0), table, sink);
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    encode_scaled_row<Block>(Iq4Grid(), row);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
