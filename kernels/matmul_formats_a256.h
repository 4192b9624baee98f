// What formats share whose sub-blocks have integer scales, in blocks of 256. Included by the file
// of each tier by way of matmul_formats.h, which says what a format has.
#pragma once

#include "kernels/matmul_words.h"

namespace sluice::kernels {
namespace {

// The sub-block of a slot, for formats whose stages take the even or the odd 16 bytes in a half of
// the block.
constexpr int interleaved(int stage, int slot) {
  return 8 * (stage / 2) + stage % 2 + 2 * slot;
}

template <typename Format, typename Rows, typename Sink>
inline void unpack_stages(Rows& rows, const typename Format::Scales& scales, Sink& sink) {
  Format::template weights_of<0>(rows, scales, sink);
  Format::template weights_of<1>(rows, scales, sink);
  Format::template weights_of<2>(rows, scales, sink);
  Format::template weights_of<3>(rows, scales, sink);
}

template <typename Format>
inline void store_block_scales(const typename Format::Scales& scales, BlockScales& out) {
  store(out.d, scales.d);
  if constexpr (Format::has_min) {
    store(out.dmin, scales.dmin);
    for (int j = 0; j < Format::min_pairs; ++j) store(out.min[j], scales.min_pair(j));
  }
}

#ifdef SLUICE_MULTIPLIES_INTEGERS

// The scale of a sub-block, and the factor of unpacked weights (scaled_up), by which the sum of a
// block is divided: as a float that is exact, since the factor is a power of two.
template <typename Format>
inline I32x16 block_scale(const typename Format::Scales& scales, int s) {
  return scales.scale(s);
}
template <typename Format>
constexpr float block_factor = [] {
  static_assert(Format::scaled_up(0) == Format::scaled_up(1));
  return 1.0f / static_cast<float>(Format::scaled_up(0));
}();

#else

// The scale of a sub-block, divided by the factor of its unpacked weights (scaled_up).
template <typename Format>
inline F32x16 block_scale(const typename Format::Scales& scales, int s) {
  const F32x16 scale = to_float(scales.scale(s));
  const int up = Format::scaled_up(s);
  return up == 1 ? scale : multiply(scale, each(1.0f / static_cast<float>(up)));
}

#endif

// The exact sum of scale * dot over the sub-blocks of a block, in any order. On x86-64 integer
// products of 32 bits are slow. Floats are exact too as long as no sum reaches 2^24: for exact_run
// sub-blocks.
template <typename Format>
class BlockSum {
 public:
#ifdef SLUICE_MULTIPLIES_INTEGERS
  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, I32x16 scale) {
    total_ = multiply_add(dot, scale, total_);
  }
  void end_run() {}
  F32x16 total() const {
    const F32x16 sum = to_float(total_);
    return block_factor<Format> == 1 ? sum : multiply(sum, each(block_factor<Format>));
  }

 private:
  I32x16 total_ = each_dword(0);
#else
  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, F32x16 scale) {
    run_ = multiply_add(to_float(dot), scale, run_);
  }
  // Call it after each exact_run sub-blocks.
  [[gnu::always_inline]] inline void end_run() {
    total_ = add(total_, to_integer(run_));
    run_ = each(0);
  }
  F32x16 total() const {
    return to_float(total_);
  }

 private:
  static_assert(Format::exact_run * Format::sub_block * Format::largest_product * 127 < 1 << 24);

  F32x16 run_ = each(0);
  I32x16 total_ = each_dword(0);
#endif
};

// The sum over the sub-blocks of each minimum times the sum of its activations.
template <typename Format>
inline I32x16 min_dot(const I32x16 (&min_pairs)[Format::min_pairs], const BlockA256& a) {
  I32x16 dot = each_dword(0);
#pragma GCC unroll 8
  for (int j = 0; j < Format::min_pairs; ++j) {
    dot = add_pair_products(min_pairs[j], each_word_at(Format::min_sums(a) + 2 * j), dot);
  }
  return dot;
}

// Scales the sum of a block, subtracts the minima, and adds the result to the sum of the row.
// `scales` are Format::Scales or PanelScales.
template <typename Format, typename Scales>
[[gnu::always_inline]] inline void finish_block(const Scales& scales, const BlockA256& a,
                                                F32x16 block, F32x16& sum) {
  F32x16 scaled = multiply(block, scales.d);
  if constexpr (Format::has_min) {
    I32x16 pairs[Format::min_pairs];
#pragma GCC unroll 8
    for (int j = 0; j < Format::min_pairs; ++j) pairs[j] = scales.min_pair(j);
    scaled = subtract_product(to_float(min_dot<Format>(pairs, a)), scales.dmin, scaled);
  }
  sum = multiply_add(scaled, each(a.d), sum);
}

// What finish_block() needs of an unpacked panel, in registers for all columns.
template <typename Format>
struct PanelScales {
  explicit PanelScales(const BlockScales& p) : d(load(p.d)) {
    if constexpr (Format::has_min) {
      dmin = load(p.dmin);
#pragma GCC unroll 8
      for (int j = 0; j < Format::min_pairs; ++j) min_pairs[j] = load_words(p.min[j]);
    }
  }
  I32x16 min_pair(int j) const {
    return min_pairs[j];
  }

  F32x16 d, dmin;
  I32x16 min_pairs[Format::has_min ? Format::min_pairs : 1];
};

// The same for the sum of the row at `sum_at`.
template <typename Format>
[[gnu::always_inline]] inline void finish_block_at(const PanelScales<Format>& scales,
                                                   const BlockA256& a, F32x16 block,
                                                   float* sum_at) {
  F32x16 sum = load(sum_at);
  finish_block<Format>(scales, a, block, sum);
  store(sum_at, sum);
}

// The base class of kernels for these formats: the part that unpacks.
template <typename Format, template <typename, typename> typename Sink = PanelSink>
struct UnpacksIntegers {
  using Panel = IntegerPanel;

  template <typename Rows>
  static void unpack(Rows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     IntegerPanel& panel) {
    go_to<Format>(rows, data, size / k_block, k / k_block);
    const auto scales = Format::Scales::template read<Format>(rows);
    Sink<Format, IntegerPanel> sink{panel};
    unpack_stages<Format>(rows, scales, sink);
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      store(panel.scale[s], block_scale<Format>(scales, s));
    }
    store_block_scales<Format>(scales, panel);
  }
};

}  // namespace
}  // namespace sluice::kernels
