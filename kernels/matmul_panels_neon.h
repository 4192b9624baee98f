// Products of unpacked panels for the tiers of aarch64. Included by the file of each tier after
// matmul_lanes_neon.h, when it has also defined
//   columns_at_once                  the most columns whose sums stay in registers
//   TierSink<Format, Panel>          a sink of weights_of<stage>() that stores them, without their
//                                    offset, in the order of
//   half_bytes                       how far the last eight rows of a panel lie behind the first
//   multiply_32<Format, parts, registers>(w, q, use)
//                                    multiplies 32 weights with the activations q[c] of columns,
//                                    and calls use(part, dot) for each of one or two parts of them:
//                                    dot[c] are the exact products, one register for each four
//                                    rows. w points to the first group of these weights, in a panel
//                                    or (with two registers) in one of its halves.
#pragma once

#include "kernels/matmul_lanes_neon.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t bytes_of_32 = 32 * panel_rows;

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format, BlockSum<Format>, TierSink> {
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
      };
      multiply_32<Format, parts, 2>(w, at, add);
      w += bytes_of_32;
      scales += parts * panel_rows;
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) at[c] += 32;
    }
    finish(p, 8 * half, x, sum, sums);
  }

  // Scales the sums of a block, subtracts the minima, and adds the results to the sums of the rows.
  template <int columns>
  [[gnu::always_inline]] static inline void finish(const IntegerPanel& p, int row,
                                                   const BlockA256* const (&x)[columns],
                                                   const int32x4_t (&block)[columns][2],
                                                   float* sums) {
    constexpr int pairs = Format::min_pairs;
    const TwoRegisters d = load_256(p.d + row);
    TwoRegisters dmin, min[pairs + 1];
    if constexpr (Format::has_min) {
      dmin = load_256(p.dmin + row);
#pragma GCC unroll 8
      for (int j = 0; j < pairs; ++j)
        min[j] = {{load_128(p.pair[j][row]), load_128(p.pair[j][row + 4])}};
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      TwoRegisters dot = {{vdupq_n_u32(0), vdupq_n_u32(0)}};
      if constexpr (Format::has_min) {
#pragma GCC unroll 8
        for (int j = 0; j < pairs; ++j) {
          const uint32x4_t activations = vdupq_n_u32(word_at(pair_sums<Format>(*x[c]) + 2 * j));
#pragma GCC unroll 2
          for (int i = 0; i < 2; ++i) {
            dot.v[i] = add_pair_products(min[j].v[i], activations, dot.v[i]);
          }
        }
      }
      const float of_column = x[c]->d;
      float* sums_of_column = sums + c * sums_stride;
      const TwoRegisters old = load_256(sums_of_column);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        float32x4_t scaled = vcvtq_f32_s32(block[c][i]);
        if constexpr (block_factor<Format> != 1) scaled = vmulq_n_f32(scaled, block_factor<Format>);
        scaled = vmulq_f32(scaled, vreinterpretq_f32_u32(d.v[i]));
        if constexpr (Format::has_min) {
          scaled = vfmsq_f32(scaled, float_of(dot.v[i]), vreinterpretq_f32_u32(dmin.v[i]));
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
      };
      multiply_32<Format, parts, registers>(p->q[0][0] + s * bytes_of_32, q, add);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) q[c] += 32;
    }
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_dispatch.h"
