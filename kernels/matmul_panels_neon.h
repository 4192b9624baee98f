// Products of unpacked panels for the tiers of aarch64. Included by the file of each tier after
// matmul_lanes_neon.h, when it has also defined
//   columns_at_once                  the most columns whose sums stay in registers
//   TierSink<Format, Panel>          a sink of weights_of<stage>() that stores them, without their
//                                    offset, in the order of
//   TierSums<columns, registers>     sums of products, with clear()
//   keeps_sums                       whether those of a sub-block need not be cleared before it
//   half_bytes                       how far the last eight rows of a panel lie behind the first
//   multiply_32<Format, parts, registers>(w, q, sums, use)
//                                    multiplies 32 weights with the activations q[c] of columns.
//                                    Adds the exact products of each of one or two parts of them to
//                                    `sums`, and then calls use(part, dot): dot[c] are the sums,
//                                    one register for each four rows. w points to the first group
//                                    of these weights, in a panel or (with two registers) in one of
//                                    its halves.
#pragma once

#include "kernels/matmul_lanes_neon.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t bytes_of_32 = 32 * panel_rows;

// The sum over the sub-blocks of scale * dot, where dots are not begun anew with each sub-block:
// the dots of all sub-blocks up to s are multiplied by the scale of s less that of s + 1 (summation
// by parts). That is exact, as all sums are those of integers modulo 2^32.
template <typename Format>
struct RunningSum {
  static I32x16 scale(const typename Format::Scales& scales, int s) {
    const I32x16 own = block_scale<Format>(scales, s);
    if (s + 1 == static_cast<int>(k_block) / Format::sub_block) return own;
    return subtract(own, block_scale<Format>(scales, s + 1));
  }
};

template <typename Format>
using TierSum = std::conditional_t<keeps_sums, RunningSum<Format>, BlockSum<Format>>;

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format, TierSum<Format>, TierSink> {
  using Column = ColumnA256;
  static constexpr int tile_columns = columns_at_once;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    static_assert(panels == 1);
    const BlockA256* x[columns];
    const std::int8_t* q[columns];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
    }
    for (int half = 0; half < 2; ++half) multiply_half(*p, half, x, q, sums + 8 * half);
  }

 private:
  // Adds the products of eight rows to their sums. Those of a block have room in registers.
  template <int columns>
  static void multiply_half(const IntegerPanel& p, int half, const BlockA256* const (&x)[columns],
                            const std::int8_t* const (&q)[columns], float* sums) {
    constexpr int parts = 32 / Format::sub_block;
    const std::uint8_t* w = base(p.q[0][0] + half * half_bytes);
    const ScaleNumber* scales = base(p.scale[0] + 8 * half);
    const std::int8_t* at[columns];
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) at[c] = q[c];
    int32x4_t sum[columns][2];
#pragma GCC unroll 4
    for (auto& of_column : sum) of_column[0] = of_column[1] = vdupq_n_s32(0);
    TierSums<columns, 2> products;
    products.clear();
    for (std::size_t k = 0; k < k_block; k += 32) {
      const auto add = [&](int part, const int32x4_t(&dot)[columns][2])
          __attribute__((always_inline)) {
        const TwoRegisters scale = load_256(scales + part * panel_rows);
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
          for (int i = 0; i < 2; ++i) {
            sum[c][i] = vmlaq_s32(sum[c][i], dot[c][i], vreinterpretq_s32_u32(scale.v[i]));
          }
        }
        if constexpr (!keeps_sums) products.clear();
      };
      multiply_32<Format, parts, 2>(w, at, products, add);
      w += bytes_of_32;
      scales += parts * panel_rows;
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) at[c] += 32;
    }
    finish(p, 8 * half, x, sum, sums);
  }

  // Adds the products of the minima of two sub-blocks, for eight rows, with the sums of their
  // activations, of which `activations` has four such pairs.
  template <int pair, int columns>
  [[gnu::always_inline]] static inline void add_minima(const std::int16_t (&of_first)[2],
                                                       const int16x8_t (&activations)[columns],
                                                       int32x4_t (&dot)[columns][2]) {
    const int16x8x2_t min = vld2q_s16(of_first);
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const auto add = [&]<int i>(std::integer_sequence<int, i>) __attribute__((always_inline)) {
        dot[c][0] =
            vmlal_laneq_s16(dot[c][0], vget_low_s16(min.val[i]), activations[c], 2 * pair + i);
        dot[c][1] = vmlal_high_laneq_s16(dot[c][1], min.val[i], activations[c], 2 * pair + i);
      };
      add(std::integer_sequence<int, 0>());
      add(std::integer_sequence<int, 1>());
    }
  }

  // Scales the sums of a block, subtracts the minima, and adds the results to the sums of the rows.
  template <int columns>
  [[gnu::always_inline]] static inline void finish(const IntegerPanel& p, int row,
                                                   const BlockA256* const (&x)[columns],
                                                   const int32x4_t (&block)[columns][2],
                                                   float* sums) {
    const TwoRegisters d = load_256(p.d + row);
    TwoRegisters dmin;
    int32x4_t dot[columns][2];
    if constexpr (Format::has_min) {
      dmin = load_256(p.dmin + row);
#pragma GCC unroll 4
      for (auto& of_column : dot) of_column[0] = of_column[1] = vdupq_n_s32(0);
      constexpr int pairs_of_load = 4;
#pragma GCC unroll 2
      for (int j = 0; j < Format::min_pairs; j += pairs_of_load) {
        int16x8_t activations[columns];
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c)
          activations[c] = vld1q_s16(pair_sums<Format>(*x[c]) + 2 * j);
        const auto add = [&]<int... i>(std::integer_sequence<int, i...>)
            __attribute__((always_inline)) {
          (add_minima<i>(p.pair[j + i][row], activations, dot), ...);
        };
        add(std::make_integer_sequence<int, pairs_of_load>());
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const float of_column = x[c]->d;
      float* sums_of_column = sums + c * sums_stride;
      const TwoRegisters old = load_256(sums_of_column);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        float32x4_t scaled = vcvtq_f32_s32(block[c][i]);
        if constexpr (block_factor<Format> != 1) scaled = vmulq_n_f32(scaled, block_factor<Format>);
        scaled = vmulq_f32(scaled, vreinterpretq_f32_u32(d.v[i]));
        if constexpr (Format::has_min) {
          scaled = vfmsq_f32(scaled, vcvtq_f32_s32(dot[c][i]), vreinterpretq_f32_u32(dmin.v[i]));
        }
        vst1q_f32(sums_of_column + 4 * i,
                  vfmaq_n_f32(vreinterpretq_f32_u32(old.v[i]), scaled, of_column));
      }
    }
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
    constexpr int parts = scales_of_32<Format>;
    TierSums<columns, registers> products;
    products.clear();
    for (std::size_t s = 0; s < weights / 32; ++s) {
      const auto add = [&](int part, const int32x4_t(&dot)[columns][registers])
          __attribute__((always_inline)) {
        const F32x16 d = load(p->d[parts * s + part]);
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) {
          const F32x16 product = floats([&](int i) { return vcvtq_f32_s32(dot[c][i]); });
          const F32x16 scale = sluice::kernels::multiply(d, each(x[c]->d[s]));
          float* sum_at = sums + c * sums_stride;
          F32x16 sum = multiply_add(product, scale, load(sum_at));
          if constexpr (Format::has_min) {
            sum = multiply_add(load(p->m[s]), each(x[c]->d_sums[s]), sum);
          }
          store(sum_at, sum);
        }
        products.clear();
      };
      multiply_32<Format, parts, registers>(p->q[0][0] + s * bytes_of_32, q, products, add);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) q[c] += 32;
    }
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_dispatch.h"
