// TQ1_0: 256 ternary weights, five in a byte, and a scale.
#pragma once

#include "kernels/formats/one_scale.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockTQ1_0 {     // x = d (digit - 1)
  std::uint8_t qs[48];  // digit t of the first 32 bytes, then digit t of the others
  std::uint8_t qh[4];   // four digits each
  std::uint16_t d;
};
#pragma pack(pop)
static_assert(sizeof(BlockTQ1_0) == 54);

namespace {

struct TQ1_0 : OffsetPanels<32, 1> {
  using Block = BlockTQ1_0;
  static constexpr BlockType type = BlockType::tq1_0, fallback = BlockType::q4_0;
  static constexpr const char* name = "TQ1_0";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true, is_odd_at_end = true;
  static constexpr std::uint32_t file_type = 36;

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d);
    for (int& scale : out.scale) scale = 1;
    unpack_digits(b.qs, 32, 5, out.q);
    unpack_digits(b.qs + 32, 16, 5, out.q + 160);
    unpack_digits(b.qh, 4, 4, out.q + 240);
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 3, largest_product = 2, exact_run = 8;
  static constexpr bool has_base_3 = true;
  using Scales = OneScale;

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    if constexpr (stage < 2) {
      sink_digits<0, 8, 2 * stage>(rows, sink);
      sink_digits<0, 8, 2 * stage + 1>(rows, sink);
    } else if constexpr (stage == 2) {
      sink_digits<0, 8, 4>(rows, sink);
      sink_digits<8, 4, 0>(rows, sink);
      sink_digits<8, 4, 1>(rows, sink);
    } else {
      sink_digits<8, 4, 2>(rows, sink);
      sink_digits<8, 4, 3>(rows, sink);
      sink_digits<8, 4, 4>(rows, sink);
      const BaseThree last(words<TQ1_0>(rows, 36).dword[3]);
      sink(1, 60, last.digit<0, 0>());
      sink(1, 61, last.digit<1, 0>());
      sink(1, 62, last.digit<2, 0>());
      sink(1, 63, last.digit<3, 0>());
    }
  }

 private:
  // Sinks digit t of `count` words from word `first` on.
  template <int first, int count, int t, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void sink_digits(Rows& rows, Sink& sink) {
    constexpr std::size_t first_group = first == 0 ? 8 * t : 40 + 4 * t;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; i += 4) {
      const auto four = words<TQ1_0>(rows, 4 * (first + i));
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t group = first_group + i + j;
        sink(group % 16 / 8, group, BaseThree(four.dword[j]).digit<t, 0>());
      }
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = ternary_scale(x, w, weights);
      const float d = half_to_float(b.d);
      pack_digits(x, d, 32, 5, b.qs);
      pack_digits(x + 160, d, 16, 5, b.qs + 32);
      pack_digits(x + 240, d, 4, 4, b.qh);
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
