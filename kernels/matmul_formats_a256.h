// What formats share whose sub-blocks have integer scales, in blocks of 256. Included by the file
// of each tier by way of matmul_formats.h, which says what a format has.
#pragma once

#include <bit>

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

#ifdef SLUICE_MULTIPLIES_INTEGERS

// The scale of a sub-block, and the factor of unpacked weights (scaled_up), by which the sum of a
// block is divided: as a float that is exact, since the factor is a power of two.
template <typename Format>
inline I32x16 block_scale(const typename Format::Scales& scales, int s) {
#ifdef SLUICE_SUMS_WORDS
  if constexpr (requires { scales.scale_pair(0); }) {
    const I32x16 pair = scales.scale_pair(2 * (s / 4) + s % 2);
    return s % 4 < 2 ? shuffle_bytes<0x01000100>(pair) : shuffle_bytes<0x03020302>(pair);
  }
  return shuffle_bytes<0x01000100>(scales.scale(s));  // in both words
#else
  return scales.scale(s);
#endif
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

// What is multiplied with the sums of the activations, for two sub-blocks each, (0 2) (1 3) (4 6)
// (5 7) and so on: minima. Where words are summed also the scales of weights with an offset, since
// that comes off the sum of a block, and not off each dot product.
#ifdef SLUICE_SUMS_WORDS

template <typename Format>
constexpr int block_pairs = Format::has_offset ? 128 / Format::sub_block : Format::min_pairs;

// scale(s) is that of a sub-block.
template <typename Scale>
[[gnu::always_inline]] inline I32x16 pair_of_scales(int j, const Scale& scale) {
  const int first = 4 * (j / 2) + j % 2;
  return join_halves(scale(first), scale(first + 2));
}

template <typename Format>
inline I32x16 block_pair(const typename Format::Scales& scales, int j) {
  if constexpr (Format::has_min) {
    return scales.min_pair(j);
  } else if constexpr (requires { scales.scale_pair(j); }) {
    return scales.scale_pair(j);
  } else {
    return pair_of_scales(j, [&](int s) { return block_scale<Format>(scales, s); });
  }
}

#else

template <typename Format>
constexpr int block_pairs = Format::min_pairs;

template <typename Format>
inline I32x16 block_pair(const typename Format::Scales& scales, int j) {
  return scales.min_pair(j);
}

#endif

template <typename Format>
inline void store_block_scales(const typename Format::Scales& scales, BlockScales& out) {
  store(out.d, scales.d);
  if constexpr (Format::has_min) {
    store(out.dmin, scales.dmin);
    for (int j = 0; j < Format::min_pairs; ++j) store(out.pair[j], scales.min_pair(j));
  }
}

// What finish_block() needs of an unpacked panel. Minima are in registers for all columns; where
// words are summed there are too many pairs for that.
template <typename Format>
struct PanelScales {
#ifdef SLUICE_SUMS_WORDS
  explicit PanelScales(const BlockScales& p) : d(load(p.d)), panel(p) {
    if constexpr (Format::has_min) dmin = load(p.dmin);
  }
  I32x16 pair(int j) const {
    return load_words(panel.pair[j]);
  }

  F32x16 d, dmin;
  const BlockScales& panel;
#else
  explicit PanelScales(const BlockScales& p) : d(load(p.d)) {
    if constexpr (Format::has_min) {
      dmin = load(p.dmin);
#pragma GCC unroll 8
      for (int j = 0; j < block_pairs<Format>; ++j) pairs[j] = load_words(p.pair[j]);
    }
  }
  I32x16 pair(int j) const {
    return pairs[j];
  }

  F32x16 d, dmin;
  I32x16 pairs[Format::has_min ? block_pairs<Format> : 1];
#endif
};

template <typename Format>
inline I32x16 block_pair(const PanelScales<Format>& scales, int j) {
  return scales.pair(j);
}

template <typename Format>
inline const std::int16_t* pair_sums(const BlockA256& a) {
  return Format::sub_block == 16 ? a.sums_of_16 : a.sums_of_32;
}

// The sum over the sub-blocks of the minimum, or the scale, times the sum of its activations.
// `scales` are Format::Scales or PanelScales.
template <typename Format, typename Scales>
[[gnu::always_inline]] inline I32x16 pair_dot(const Scales& scales, const BlockA256& a) {
  const std::int16_t* sums = pair_sums<Format>(a);
  I32x16 dot = each_dword(0);
#pragma GCC unroll 8
  for (int j = 0; j < block_pairs<Format>; ++j) {
    dot = add_pair_products(block_pair<Format>(scales, j), each_word_at(sums + 2 * j), dot);
  }
  return dot;
}

// The exact sum of scale * dot over the sub-blocks of a block, in any order. On x86-64 integer
// products of 32 bits are slow, and those of 16 bits need dot products in words. Floats are exact
// too as long as no sum reaches 2^24: for exact_run sub-blocks.
template <typename Format>
class BlockSum {
 public:
  static auto scale(const typename Format::Scales& scales, int s) {
    return block_scale<Format>(scales, s);
  }
#ifdef SLUICE_MULTIPLIES_INTEGERS
  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, I32x16 scale) {
#ifdef SLUICE_SUMS_WORDS
    total_ = add_pair_products(dot, scale, total_);
#else
    total_ = multiply_add(dot, scale, total_);
#endif
  }
#ifdef SLUICE_SUMS_WORDS
  [[gnu::always_inline]] inline void add(const BlockSum& other) {
    total_ = kernels::add(total_, other.total_);
  }
#endif
  void end_run() {}
  // Of the weights, whose scales are Format::Scales or PanelScales, times the activations a.
  template <typename Scales>
  F32x16 total([[maybe_unused]] const Scales& scales, [[maybe_unused]] const BlockA256& a) const {
    I32x16 sum = total_;
#ifdef SLUICE_SUMS_WORDS
    if constexpr (Format::has_offset) {
      const I32x16 dot = pair_dot<Format>(scales, a);
      sum = kernels::add(sum, multiply(dot, each_dword(-Format::offset)));
    }
#endif
    const F32x16 total = to_float(sum);
    return block_factor<Format> == 1 ? total : multiply(total, each(block_factor<Format>));
  }

 private:
  I32x16 total_ = each_dword(0);
#else
  static F32x16 load_scale(const ScaleNumber* p) {
    return load(p);
  }

  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, F32x16 scale) {
    run_ = multiply_add(to_float(dot), scale, run_);
  }
  // Call it after each exact_run sub-blocks.
  [[gnu::always_inline]] inline void end_run() {
    total_ = add(total_, to_integer(run_));
    run_ = each(0);
  }
  template <typename Scales>
  F32x16 total(const Scales&, const BlockA256&) const {
    return to_float(total_);
  }

 private:
  static_assert(Format::exact_run * Format::sub_block * Format::largest_product * 127 < 1 << 24);

  F32x16 run_ = each(0);
  I32x16 total_ = each_dword(0);
#endif
};

#ifdef SLUICE_HAS_DWORD_PRODUCTS

// The same in integers alone, for the processors that CorePolicy tells of: nothing is converted
// before the end of the block.
template <typename Format>
class DwordSum {
 public:
  // Makes up for what the weights of other sub-blocks are multiplied by (scaled_up).
  static I32x16 scale(const typename Format::Scales& scales, int s) {
    const int times = largest_factor / Format::scaled_up(s);  // a power of two
    return left_32(scales.scale(s), std::countr_zero(static_cast<unsigned>(times)));
  }
  static I32x16 load_scale(const ScaleNumber* p) { return load_words(p); }

  [[gnu::always_inline]] inline void add_scaled(I32x16 dot, I32x16 scale) {
    total_ = add(total_, multiply(dot, scale));
  }
  void end_run() {}
  template <typename Scales>
  F32x16 total(const Scales&, const BlockA256&) const {
    const F32x16 total = to_float(total_);
    return largest_factor == 1 ? total : multiply(total, each(1.0f / largest_factor));
  }

 private:
  static constexpr int largest_factor = [] {
    int most = 1;
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      if (Format::scaled_up(s) > most) most = Format::scaled_up(s);
    }
    return most;
  }();
  static_assert(std::int64_t{largest_factor} * k_block * Format::largest_product * 127 <
                std::int64_t{1} << 31);

  I32x16 total_ = each_dword(0);
};

#endif

// Scales the sum of a block, subtracts the minima, and adds the result to the sum of the row.
template <typename Format, typename Scales>
[[gnu::always_inline]] inline void finish_block(const Scales& scales, const BlockA256& a,
                                                F32x16 block, F32x16& sum) {
  F32x16 scaled = multiply(block, scales.d);
  if constexpr (Format::has_min) {
    scaled = subtract_product(to_float(pair_dot<Format>(scales, a)), scales.dmin, scaled);
  }
  sum = multiply_add(scaled, each(a.d), sum);
}

// The same for the sum of the row at `sum_at`.
template <typename Format>
[[gnu::always_inline]] inline void finish_block_at(const PanelScales<Format>& scales,
                                                   const BlockA256& a, F32x16 block,
                                                   float* sum_at) {
  F32x16 sum = load(sum_at);
  finish_block<Format>(scales, a, block, sum);
  store(sum_at, sum);
}

// The base class of kernels for these formats: the part that unpacks. Sum::scale gives
// what is stored for a sub-block (BlockSum, DwordSum, or one of the tier).
template <typename Format, typename Sum, template <typename, typename> typename Sink = PanelSink>
struct UnpacksIntegers {
  using Panel = IntegerPanel;

  template <typename Rows>
  static void unpack(Rows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     IntegerPanel& panel) {
    go_to<Format>(rows, data, size / k_block, k / k_block);
    const auto scales = Format::Scales::template read<Format>(rows);
    Sink<Format, IntegerPanel> sink{panel};
    unpack_stages<Format>(rows, scales, sink);
#pragma GCC unroll 16
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      store(panel.scale[s], Sum::scale(scales, s));
    }
    store_block_scales<Format>(scales, panel);
#ifdef SLUICE_SUMS_WORDS
    if constexpr (Format::has_offset) {
      const auto scale = [&](int s) { return load_words(panel.scale[s]); };
      for (int j = 0; j < block_pairs<Format>; ++j) store(panel.pair[j], pair_of_scales(j, scale));
    }
#endif
  }
};

}  // namespace
}  // namespace sluice::kernels
