// TQ2_0: 256 ternary weights of two bits each, and a scale.
#pragma once

#include "kernels/formats/one_scale.h"
#include "kernels/formats/q2_k.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockTQ2_0 {  // x = d (q - 1)
  std::uint8_t qs[64];
  std::uint16_t d;
};
#pragma pack(pop)
static_assert(sizeof(BlockTQ2_0) == 66);

namespace {

struct TQ2_0 : OffsetPanels<16, 1> {
  using Block = BlockTQ2_0;
  static constexpr BlockType type = BlockType::tq2_0, fallback = BlockType::q4_0;
  static constexpr const char* name = "TQ2_0";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true, is_odd_at_end = true;
  static constexpr std::uint32_t file_type = 37;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d);
    for (int& scale : out.scale) scale = 1;
    for (int k = 0; k < 256; ++k) out.q[k] = two_bits(b.qs, k) - 1;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 3, largest_product = 2, exact_run = 16;
  using Scales = OneScale;

  static constexpr int sub_block_of(int stage, int slot) {
    return interleaved(stage, slot);
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    const auto qs = words<TQ2_0>(rows, 16 * stage);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t group = 32 * (stage / 2) + 4 * (stage % 2) + j;
      const I32x16 q = qs.dword[j];
      sink(0, group, move_bits<2, 0, 0>(q));
      sink(1, group + 8, move_bits<2, 2, 0>(q));
      sink(2, group + 16, move_bits<2, 4, 0>(q));
      sink(3, group + 24, move_bits<2, 6, 0>(q));
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = ternary_scale(x, w, weights);
      const float d = half_to_float(b.d);
      for (int k = 0; k < weights; ++k) set_two_bits(b.qs, k, ternary_code(x[k], d));
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
