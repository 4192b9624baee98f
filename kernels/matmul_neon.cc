// The matrix product for Armv8.0, which has no dot product of bytes. Bytes are multiplied to words,
// which are summed for as long as they cannot overflow: 17 groups of four weights of four bits, 8
// of five bits, 4 of six bits, 2 of more.
#include "kernels/matmul_lanes_neon.h"

namespace sluice::kernels {
namespace {

constexpr int columns_at_once = 2;  // of which each has eight registers of words and four of sums

template <int columns, int registers>
using TierSums = ProductSums<columns, registers>;
constexpr bool keeps_sums = false;  // the first products of a sub-block are no sum

template <typename Format, typename Panel>
using TierSink = SignedSink<Format, Panel>;

constexpr std::size_t half_bytes = 32;
constexpr std::size_t group_bytes = 64;  // four weights of each row

// How many of `groups` groups of four weights can be summed in 16 bits, if no byte is larger.
constexpr int groups_in_16_bits(int largest, int groups) {
  const int most = largest <= 32 ? 8 : largest <= 64 ? 4 : 2;
  return most < groups ? most : groups;
}

// The products of four weights of four rows.
struct Words {
  int16x8_t low, high;
};

[[gnu::always_inline]] inline void set_products(Words& words, int8x16_t w, int8x16_t a) {
  words.low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
  words.high = vmull_high_s8(w, a);
}
[[gnu::always_inline]] inline void add_products(Words& words, int8x16_t w, int8x16_t a) {
  words.low = vmlal_s8(words.low, vget_low_s8(w), vget_low_s8(a));
  words.high = vmlal_high_s8(words.high, w, a);
}

// Adds the sums of a run to `dot`. Two words of weights of four bits still fit into one.
template <int largest>
[[gnu::always_inline]] inline void end_run(const Words& words, int32x4_t& dot) {
  if constexpr (largest <= 15) {
    dot = vpadalq_s16(dot, vpaddq_s16(words.low, words.high));
  } else {
    dot = vaddq_s32(dot, vpaddq_s32(vpaddlq_s16(words.low), vpaddlq_s16(words.high)));
  }
}

inline int8x16_t four_times(const std::int8_t* q) {
  return signed_bytes_of(vdupq_n_u32(word_at(q)));
}

// The largest byte of weights without their offset.
template <typename Format>
constexpr int largest_of_signed = [] {
  int largest = Format::largest_q;
  if constexpr (Format::has_offset) {
    largest -= Format::offset;
    if (largest < Format::offset) largest = Format::offset;
  }
  return largest;
}();

template <typename Format, int parts, int registers, int columns, typename Use>
[[gnu::always_inline]] inline void multiply_32(const std::uint8_t* w,
                                               const std::int8_t* const (&q)[columns],
                                               ProductSums<columns, registers>& sums,
                                               const Use& use) {
  constexpr int groups = 8 / parts;
  constexpr int largest = largest_of_signed<Format>, run = groups_in_16_bits(largest, groups);
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
#pragma GCC unroll 4
    for (int start = groups * part; start < groups * (part + 1); start += run) {
      Words words[columns][registers];
#pragma GCC unroll 8
      for (int g = start; g < start + run; ++g) {
        int8x16_t a[columns];
        for (int c = 0; c < columns; ++c) a[c] = four_times(q[c] + 4 * g);
#pragma GCC unroll 2
        for (int i = 0; i < registers; i += 2) {
          const TwoRegisters rows =
              load_256(w + static_cast<std::size_t>(g) * group_bytes + 16 * i);
#pragma GCC unroll 2
          for (int j = 0; j < 2; ++j) {
            const int8x16_t four = signed_bytes_of(rows.v[j]);
#pragma GCC unroll 2
            for (int c = 0; c < columns; ++c) {
              if (g == start) {
                set_products(words[c][i + j], four, a[c]);
              } else {
                add_products(words[c][i + j], four, a[c]);
              }
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 4
        for (int i = 0; i < registers; ++i) end_run<largest>(words[c][i], sums.sum[c][i]);
      }
    }
    use(part, sums.sum);
  }
}

template <typename Format, int slots, int columns>
class DotSink {
 public:
  explicit DotSink(const std::int8_t* const (&q)[columns]) : q_(q) {
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 4
        for (int32x4_t& sum : dot_[slot][c]) sum = vdupq_n_s32(0);
      }
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
          int32x4_t& dot = dot_[slot][c][i];
          dot = vpadalq_s16(dot, vpaddq_s16(low, vmull_high_s8(w, a)));
        } else {
          Words& words = words_[slot][c][i];
          if (group % run == 0) {
            set_products(words, w, a);
          } else {
            add_products(words, w, a);
          }
          if (group % run == run - 1) end_run<Format::largest_q>(words, dot_[slot][c][i]);
        }
      }
    }
  }
  I32x16 dot(int slot, int column) const {
    return integers([&](int i) { return vreinterpretq_u32_s32(dot_[slot][column][i]); });
  }

 private:
  // Words take twice the registers of sums. Where they would not fit, products are summed at once.
  static constexpr bool sums_words = slots * columns <= 2;

  const std::int8_t* const (&q_)[columns];
  Words words_[sums_words ? slots : 1][sums_words ? columns : 1][registers];
  int32x4_t dot_[slots][columns][registers];
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_neon.h"
#include "kernels/matmul_part.h"
