// Products of an unpacked panel with several columns, for the tiers with the lanes of AVX2.
// Included by the file of each after it has defined
//   dot_groups<columns, groups, largest_q>(panel, group, q, dot)
//                    dot[c] = the exact products of `groups` times four weights, from `group` on,
//                    with the activations q[c] of each column
//   columns_at_once  how many columns have sums in registers
#pragma once

#include "kernels/matmul_lanes_avx2.h"

namespace sluice::kernels {
namespace {

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format> {
  using Column = ColumnA256;
  static constexpr int tile_columns = columns_at_once;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    for (int i = 0; i < panels; ++i) multiply_panel<columns>(p[i], a, k, sums + i * panel_rows);
  }

 private:
  // Inlined, the loop over panels would take registers that the sums need.
  template <int columns>
  [[gnu::noinline]] static void multiply_panel(const IntegerPanel& p, const Column* a,
                                               std::size_t k, float* sums) {
    constexpr int groups = Format::sub_block / 4;
    const BlockA256* x[columns];
    const std::int8_t* q[columns];
    BlockSum<Format> block[columns];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
    }
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      I32x16 dot[columns];
      dot_groups<columns, groups, Format::largest_q>(p, s * groups, q, dot);
      const F32x16 scale = load(p.scale[s]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        if constexpr (Format::has_offset) {
          dot[c] = add(dot[c], Format::offset_dot(*x[c], s));
        }
        block[c].add_scaled(dot[c], scale);
      }
      if (s % Format::exact_run != Format::exact_run - 1) continue;
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) block[c].end_run();
    }
    for (int c = 0; c < columns; ++c) finish(p, *x[c], block[c].total(), sums + c * sums_stride);
  }

  // Scales the sum of a block, subtracts the minima, and adds the result to the sum of the row.
  static void finish(const IntegerPanel& p, const BlockA256& a, F32x16 block, float* sum_at) {
    F32x16 scaled = sluice::kernels::multiply(block, load(p.d));
    if constexpr (Format::has_min) {
      I32x16 pairs[Format::min_pairs];
      for (int j = 0; j < Format::min_pairs; ++j) pairs[j] = load_words(p.min[j]);
      scaled = subtract_product(to_float(min_dot<Format>(pairs, a)), load(p.dmin), scaled);
    }
    store(sum_at, multiply_add(scaled, each(a.d), load(sum_at)));
  }
};

template <typename Format>
struct SmallKernel : UnpacksSmall<Format> {
  using Column = ColumnA32;
  static constexpr int tile_columns = columns_at_once;

  static Column column(const Activations& x, std::size_t c) { return x.a32(c); }

  template <int panels, int columns>
  static void multiply(const SmallPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    for (int i = 0; i < panels; ++i) {
      multiply_panel<columns>(p[i], a, k, weights, sums + i * panel_rows);
    }
  }

 private:
  // Inlined, the loop over panels would take registers that the sums need.
  template <int columns>
  [[gnu::noinline]] static void multiply_panel(const SmallPanel& p, const Column* a, std::size_t k,
                                               std::size_t weights, float* sums) {
    const BlockA32* x[columns];
    const std::int8_t* q[columns];
    F32x16 sum[columns];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
      sum[c] = load(sums + c * sums_stride);
    }
    constexpr int groups = Format::sub_block / 4;
    for (std::size_t at = 0; at < weights / Format::sub_block; ++at) {
      const std::size_t s = at / scales_of_32<Format>;
      I32x16 dot[columns];
      dot_groups<columns, groups, Format::largest_q>(p, groups * at, q, dot);
      const F32x16 d = load(p.d[at]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        if constexpr (Format::has_offset) {
          dot[c] = add(dot[c], each_dword(offset_dot<Format>(*x[c], at)));
        }
        const F32x16 scale = sluice::kernels::multiply(d, each(x[c]->d[s]));
        sum[c] = multiply_add(to_float(dot[c]), scale, sum[c]);
        if constexpr (Format::has_min) {
          sum[c] = multiply_add(load(p.m[s]), each(x[c]->d_sums[s]), sum[c]);
        }
      }
    }
    for (int c = 0; c < columns; ++c) store(sums + c * sums_stride, sum[c]);
  }
};

}  // namespace
}  // namespace sluice::kernels
