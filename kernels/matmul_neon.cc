// The matrix product for Armv8.0, which has no dot product of bytes. Bytes are multiplied to words,
// which are summed for as long as they cannot overflow: 17 groups of four weights of four bits, 8
// of five bits, 4 of six bits, 2 of more.
#include "kernels/matmul_lanes_neon.h"

namespace sluice::kernels {
namespace {

constexpr int columns_at_once = 2;  // of which each has eight registers of words and four of sums

template <typename Format, typename Panel>
using TierSink = PanelSink<Format, Panel>;

// How many of `groups` groups of four weights can be summed in 16 bits.
constexpr int groups_in_16_bits(int largest_q, int groups) {
  const int most = largest_q <= 31 ? 8 : largest_q <= 63 ? 4 : 2;
  return most < groups ? most : groups;
}

// Products of four weights of 16 rows: register 2 i has rows 4 i and 4 i + 1.
struct Words {
  int16x8_t v[2 * registers];
};

[[gnu::always_inline]] inline void set_products(Words& words, int i, int8x16_t w, int8x16_t a) {
  words.v[2 * i] = vmull_s8(vget_low_s8(w), vget_low_s8(a));
  words.v[2 * i + 1] = vmull_high_s8(w, a);
}
[[gnu::always_inline]] inline void add_products(Words& words, int i, int8x16_t w, int8x16_t a) {
  words.v[2 * i] = vmlal_s8(words.v[2 * i], vget_low_s8(w), vget_low_s8(a));
  words.v[2 * i + 1] = vmlal_high_s8(words.v[2 * i + 1], w, a);
}

// Adds the sums of a run to `dot`. Two words of weights of four bits still fit into one.
template <int largest_q>
[[gnu::always_inline]] inline void end_run(const Words& words, I32x16& dot) {
#pragma GCC unroll 4
  for (int i = 0; i < registers; ++i) {
    const int16x8_t low = words.v[2 * i], high = words.v[2 * i + 1];
    int32x4_t sum = vreinterpretq_s32_u32(dot.v[i]);
    if constexpr (largest_q <= 15) {
      sum = vpadalq_s16(sum, vpaddq_s16(low, high));
    } else {
      sum = vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
    }
    dot.v[i] = vreinterpretq_u32_s32(sum);
  }
}

inline int8x16_t four_times(const std::int8_t* q) {
  return signed_bytes_of(vdupq_n_u32(word_at(q)));
}

template <int columns, int groups, typename Format, typename Panel>
inline void dot_groups(const Panel& p, std::size_t group, const std::int8_t* const* q,
                       I32x16 (&dot)[columns]) {
  constexpr int run = groups_in_16_bits(Format::largest_q, groups);
  for (int c = 0; c < columns; ++c) dot[c] = each_dword(0);
#pragma GCC unroll 8
  for (int start = 0; start < groups; start += run) {
    Words words[columns];
#pragma GCC unroll 8
    for (int g = start; g < start + run; ++g) {
      int8x16_t a[columns];
      for (int c = 0; c < columns; ++c) a[c] = four_times(q[c] + 4 * (group + g));
#pragma GCC unroll 4
      for (int i = 0; i < registers; ++i) {
        const int8x16_t w = signed_bytes_of(load_128(p.q[group + g][4 * i]));
#pragma GCC unroll 2
        for (int c = 0; c < columns; ++c) {
          if (g == start) {
            set_products(words[c], i, w, a[c]);
          } else {
            add_products(words[c], i, w, a[c]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int c = 0; c < columns; ++c) end_run<Format::largest_q>(words[c], dot[c]);
  }
}

template <typename Format, int slots, int columns>
class DotSink {
 public:
  explicit DotSink(const std::int8_t* const (&q)[columns]) : q_(q) {
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) dot_[slot][c] = each_dword(0);
    }
  }
  // The groups of a slot come in ascending order, the first a multiple of 4 or 8.
  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
    constexpr std::size_t run = groups_in_16_bits(Format::largest_q, Format::sub_block / 4);
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const int8x16_t a = four_times(q_[c] + 4 * group);
#pragma GCC unroll 4
      for (int i = 0; i < registers; ++i) {
        const int8x16_t w = signed_bytes_of(q.v[i]);
        if constexpr (!sums_words) {
          const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
          uint32x4_t& dot = dot_[slot][c].v[i];
          dot = vreinterpretq_u32_s32(
              vpadalq_s16(vreinterpretq_s32_u32(dot), vpaddq_s16(low, vmull_high_s8(w, a))));
        } else if (group % run == 0) {
          set_products(words_[slot][c], i, w, a);
        } else {
          kernels::add_products(words_[slot][c], i, w, a);
        }
      }
      if (sums_words && group % run == run - 1) {
        end_run<Format::largest_q>(words_[slot][c], dot_[slot][c]);
      }
    }
  }
  I32x16 dot(int slot, int column) const {
    return dot_[slot][column];
  }

 private:
  // Words take twice the registers of sums. Where they would not fit, products are summed at once.
  static constexpr bool sums_words = slots * columns <= 2;

  const std::int8_t* const (&q_)[columns];
  Words words_[sums_words ? slots : 1][sums_words ? columns : 1];
  I32x16 dot_[slots][columns];
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_neon.h"
#include "kernels/matmul_part.h"
