// Products of unpacked panels for the tiers of aarch64. Included by the file of each tier after
// matmul_lanes_neon.h, when it has also defined
//   columns_at_once                  the most columns whose sums stay in registers
//   TierSink<Format, Panel>          a sink of weights_of<stage>() that stores them in the order of
//   dot_groups<columns, groups, Format>(panel, group, q, dot)
//                                    dot[c] = the exact products of `groups` times four weights,
//                                    from `group` on, with the activations q[c]
#pragma once

#include "kernels/matmul_lanes_neon.h"

namespace sluice::kernels {
namespace {

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format, TierSink> {
  using Column = ColumnA256;
  static constexpr int tile_columns = columns_at_once;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    static_assert(panels == 1);
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
      dot_groups<columns, groups, Format>(*p, s * groups, q, dot);
      const F32x16 scale = load(p->scale[s]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        if constexpr (Format::has_offset) dot[c] = add(dot[c], Format::offset_dot(*x[c], s));
        block[c].add_scaled(dot[c], scale);
      }
      if (s % Format::exact_run != Format::exact_run - 1) continue;
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) block[c].end_run();
    }
    for (int c = 0; c < columns; ++c) finish(*p, *x[c], block[c].total(), sums + c * sums_stride);
  }

 private:
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
struct SmallKernel : UnpacksSmall<Format, TierSink> {
  using Column = ColumnA32;
  static constexpr int tile_columns = columns_at_once;

  static Column column(const Activations& x, std::size_t c) { return x.a32(c); }

  template <int panels, int columns>
  static void multiply(const SmallPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    static_assert(panels == 1);
    const BlockA32* x[columns];
    const std::int8_t* q[columns];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
    }
    constexpr int groups = Format::sub_block / 4;
    for (std::size_t n = 0; n < weights / Format::sub_block; ++n) {
      const std::size_t s = n / scales_of_32<Format>;  // the 32 weights that it belongs to
      I32x16 dot[columns];
      dot_groups<columns, groups, Format>(*p, groups * n, q, dot);
      const F32x16 d = load(p->d[n]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        if constexpr (Format::has_offset) {
          dot[c] = add(dot[c], each_dword(offset_dot<Format>(*x[c], n)));
        }
        const F32x16 scale = sluice::kernels::multiply(d, each(x[c]->d[s]));
        float* sum_at = sums + c * sums_stride;
        F32x16 sum = multiply_add(to_float(dot[c]), scale, load(sum_at));
        if constexpr (Format::has_min) {
          sum = multiply_add(load(p->m[s]), each(x[c]->d_sums[s]), sum);
        }
        store(sum_at, sum);
      }
    }
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_dispatch.h"
