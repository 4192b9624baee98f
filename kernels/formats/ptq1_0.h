// PTQ1_0: 128 ternary weights, five in a byte, and a scale.
#pragma once

#include "kernels/formats/one_scale.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockPTQ1_0 {    // x = d (digit - 1)
  std::uint8_t qs[24];  // digit t of the first 16 bytes, then digit t of the others
  std::uint8_t qh[2];   // four digits each
  std::uint16_t d;
};
#pragma pack(pop)
static_assert(sizeof(BlockPTQ1_0) == 28);

namespace {

struct PTQ1_0 : EighthsPanels<PTQ1_0> {
  using Block = BlockPTQ1_0;
  static constexpr BlockType type = BlockType::ptq1_0, fallback = BlockType::q4_0;
  static constexpr const char* name = "PTQ1_0";
  static constexpr int weights = 128;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 143;

  static SmallBlock<128> unpack(const Block& b) {
    SmallBlock<128> out{{}, half_to_float(b.d) * 0.125f, 0};
    unpack_digits(b.qs, 16, 5, out.q);
    unpack_digits(b.qs + 16, 8, 5, out.q + 80);
    unpack_digits(b.qh, 2, 4, out.q + 120);
    for (int& q : out.q) q *= 8;
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 16;
  static constexpr bool has_base_3 = true;

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {multiply(high_halves(last_word<PTQ1_0>(rows)), each(0.125f)), each(0)};
  }
  template <int group, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    if constexpr (group < 2) {
      sink_four<2 * group>(rows, 0, sink);
      sink_four<2 * group + 1>(rows, 4, sink);
    } else if constexpr (group == 2) {
      sink_four<4>(rows, 0, sink);
      const auto tail = words<PTQ1_0>(rows, 12);
      sink_two<0>(tail, 4, sink);
      sink_two<1>(tail, 6, sink);
    } else {
      const auto tail = words<PTQ1_0>(rows, 12);
      sink_two<2>(tail, 0, sink);
      sink_two<3>(tail, 2, sink);
      sink_two<4>(tail, 4, sink);
      sink(0, 6, of_last_two<0>(tail.dword[3]));
      sink(0, 7, of_last_two<2>(tail.dword[3]));
    }
  }

 private:
  // Eight times digit t of every byte.
  template <int t>
  [[gnu::always_inline]] static inline I32x16 eight_digits(I32x16 x) {
    return BaseThree(x).digit<t, 3>();
  }
  // Sinks digit t of the first 16 bytes.
  template <int t, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void sink_four(Rows& rows, std::size_t group, Sink& sink) {
    const auto four = words<PTQ1_0>(rows, 0);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) sink(0, group + j, eight_digits<t>(four.dword[j]));
  }
  // Sinks digit t of the next eight bytes; `tail` begins four bytes before them.
  template <int t, typename Dwords, typename Sink>
  [[gnu::always_inline]] static inline void sink_two(const Dwords& tail, std::size_t group,
                                                     Sink& sink) {
    sink(0, group, eight_digits<t>(tail.dword[1]));
    sink(0, group + 1, eight_digits<t>(tail.dword[2]));
  }
  // Digits t and t + 1 of the two bytes in the lower halves of the lanes.
  template <int t>
  [[gnu::always_inline]] static inline I32x16 of_last_two(I32x16 x) {
    return bits_or(bits_and(eight_digits<t>(x), each_dword(0xffff)),
                   left_32(eight_digits<t + 1>(x), 16));
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
 public:
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = ternary_scale(x, w, weights);
      const float d = half_to_float(b.d);
      pack_digits(x, d, 16, 5, b.qs);
      pack_digits(x + 80, d, 8, 5, b.qs + 16);
      pack_digits(x + 120, d, 2, 4, b.qh);
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
