// TQ1_0: 256 ternary weights, five in a byte, and a scale.
#pragma once

#include "kernels/formats/tq2_0.h"

namespace sluice::kernels {

// A byte is a fraction of 256: its digits in base 3 are the weights, the first one in front.
#pragma pack(push, 1)
struct BlockTQ1_0 {     // x = d (digit - 1)
  std::uint8_t qs[48];  // digit t of the first 32 bytes, then digit t of the others
  std::uint8_t qh[4];   // four digits each
  std::uint16_t d;
};
#pragma pack(pop)
static_assert(sizeof(BlockTQ1_0) == 54);

namespace {

struct TQ1_0 {
  using Block = BlockTQ1_0;
  static constexpr BlockType type = BlockType::tq1_0, fallback = BlockType::q4_0;
  static constexpr const char* name = "TQ1_0";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true, is_odd_at_end = true;
  static constexpr std::uint32_t file_type = 36;

  static constexpr int powers_of_3[5] = {1, 3, 9, 27, 81};

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out;
    out.d = half_to_float(b.d);
    for (int& scale : out.scale) scale = 1;
    const auto set = [](int* q, const std::uint8_t* bytes, int count, int digits) {
      for (int t = 0; t < digits; ++t) {
        for (int j = 0; j < count; ++j) {
          q[t * count + j] = ((bytes[j] * powers_of_3[t] & 255) * 3 >> 8) - 1;
        }
      }
    };
    set(out.q, b.qs, 32, 5);
    set(out.q + 160, b.qs + 32, 16, 5);
    set(out.q + 240, b.qh, 4, 4);
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 3, largest_product = 2, slots = 2, sub_block = 32;
  static constexpr int exact_run = 8, min_pairs = 0;
  static constexpr bool has_offset = true, is_for_tiles = false, unpacks_first = true;
  using Scales = OneScale;

  static constexpr int sub_block_of(int stage, int slot) {
    return 2 * stage + slot;
  }
  static constexpr int scaled_up(int) {
    return 1;
  }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return offset_product<sub_block, 1>(a, s);
  }

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
      const I32x16 last = words<TQ1_0>(rows, 36).dword[3];
      sink(1, 60, digits<0>(last));
      sink(1, 61, digits<1>(last));
      sink(1, 62, digits<2>(last));
      sink(1, 63, digits<3>(last));
    }
  }

 private:
  // Digit t of every byte.
  template <int t>
  [[gnu::always_inline]] static inline I32x16 digits(I32x16 x) {
    const auto of_words = [](I32x16 bytes) {
      const I32x16 fraction = bits_and(times_16(bytes, powers_of_3[t]), each_dword(0x00ff00ff));
      return right_16<8>(times_16(fraction, 3));
    };
    const I32x16 even = of_words(bits_and(x, each_dword(0x00ff00ff)));
    return bits_or(even, left_16<8>(of_words(right_16<8>(x))));
  }

  // Sinks digit t of `count` words from word `first` on.
  template <int first, int count, int t, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void sink_digits(Rows& rows, Sink& sink) {
    constexpr std::size_t first_group = first == 0 ? 8 * t : 40 + 4 * t;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; i += 4) {
      const RowDwords four = words<TQ1_0>(rows, 4 * (first + i));
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t group = first_group + i + j;
        sink(group % 16 / 8, group, digits<t>(four.dword[j]));
      }
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = ternary_scale(x, w, weights);
      const float d = half_to_float(b.d);
      const auto set = [d](std::uint8_t* bytes, const float* of_bytes, int count, int digits) {
        for (int j = 0; j < count; ++j) {
          int number = 0;
          for (int t = 0; t < digits; ++t) {
            number += ternary_code(of_bytes[t * count + j], d) * powers_of_3[4 - t];
          }
          bytes[j] = static_cast<std::uint8_t>((number * 256 + 242) / 243);
        }
      };
      set(b.qs, x, 32, 5);
      set(b.qs + 32, x + 160, 16, 5);
      set(b.qh, x + 240, 4, 4);
    });
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
