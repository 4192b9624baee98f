// Q1_0: 128 signs and a scale.
#pragma once

#include "kernels/formats/one_scale.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ1_0 {  // x = d where the bit is set, else -d
  std::uint16_t d;
  std::uint8_t qs[16];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ1_0) == 18);

namespace {

struct Q1_0 : EighthsPanels<Q1_0> {
  using Block = BlockQ1_0;
  static constexpr BlockType type = BlockType::q1_0, fallback = BlockType::q4_0;
  static constexpr const char* name = "Q1_0";
  static constexpr int weights = 128;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 40;

  static SmallBlock<128> unpack(const Block& b) {
    SmallBlock<128> out{{}, half_to_float(b.d) * 0.125f, 0};
    for (int k = 0; k < 128; ++k) out.q[k] = bit(b.qs, k) ? 8 : -8;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 16;

  template <int group, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const I32x16 bits = words<Q1_0>(rows, 0).dword[group];
    sink_byte<0>(bits, sink);
    sink_byte<1>(bits, sink);
    sink_byte<2>(bits, sink);
    sink_byte<3>(bits, sink);
  }

 private:
  template <int byte, typename Sink>
  [[gnu::always_inline]] static inline void sink_byte(I32x16 bits, Sink& sink) {
    const I32x16 repeated = shuffle_bytes<byte * 0x01010101>(bits);
    const I32x16 zeros = each_dword(0), sixteens = each_byte(16);
    sink(0, 2 * byte, choose(has_bits(repeated, 0x08040201), sixteens, zeros));
    sink(0, 2 * byte + 1,
         choose(has_bits(repeated, static_cast<int>(0x80402010)), sixteens, zeros));
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = binary_scale(x, w, weights);
      for (int k = 0; k < weights; ++k) {
        b.qs[k / 8] |= static_cast<std::uint8_t>((x[k] >= 0) << k % 8);
      }
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
