// Products of unpacked panels with several columns, for the tiers of x86-64. Included by the file
// of each after it has defined
//   multiply_groups<panels, columns, groups, largest_q>(p, group, q, start, dot)
//                        dot[c][i] = start(c), which may be asked for late to save registers, + the
//                        exact products of `groups` times four weights of panel i, from `group` on,
//                        with the activations q[c] of each column
//   add_sub_block<Format>(p, s, x, q, block)   adds to block[c][i] the products of sub-block s of
//                        panel i, only where SLUICE_SUMS_WORDS is defined
//   panels_in_registers  of how many panels the sums have registers, and
//   columns_at_once      of how many columns
#pragma once

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

// How many of `panels` panels are multiplied together.
template <int panels>
constexpr int panels_together = panels < panels_in_registers ? panels : panels_in_registers;

#ifndef SLUICE_SUMS_WORDS

template <typename Format, int panels, int columns, typename Sum>
[[gnu::always_inline]] inline void add_sub_block(const IntegerPanel* p, int s,
                                                 const BlockA256* const (&x)[columns],
                                                 const std::int8_t* const (&q)[columns],
                                                 Sum (&block)[columns][panels]) {
  constexpr int groups = Format::sub_block / 4;
  const auto start = [&]([[maybe_unused]] int c) __attribute__((always_inline)) {
    if constexpr (Format::has_offset) return Format::offset_dot(*x[c], s);
    return each_dword(0);
  };
  I32x16 dot[columns][panels];
  multiply_groups<panels, columns, groups, Format::largest_q>(p, s * groups, q, start, dot);
#pragma GCC unroll 2
  for (int i = 0; i < panels; ++i) {
    const auto scale = Sum::load_scale(p[i].scale[s]);
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) block[c][i].add_scaled(dot[c][i], scale);
  }
}

#endif

template <typename Format, typename Sum = BlockSum<Format>>
struct IntegerKernel : UnpacksIntegers<Format, Sum> {
  using Column = ColumnA256;
  static constexpr int tile_columns = columns_at_once;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    constexpr int together = panels_together<panels>;
    for (int i = 0; i < panels; i += together) {
      multiply_together<together, columns>(p + i, a, k, sums + i * panel_rows);
    }
  }

 private:
  // Inlined, the loops around it would take registers that the sums need.
  template <int panels, int columns>
  [[gnu::noinline]] static void multiply_together(const IntegerPanel* p, const Column* a,
                                                  std::size_t k, float* sums) {
    const BlockA256* x[columns];
    const std::int8_t* q[columns];
    Sum block[columns][panels];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
    }
    for (int s = 0; s < static_cast<int>(k_block) / Format::sub_block; ++s) {
      add_sub_block<Format, panels, columns>(p, s, x, q, block);
      if (s % Format::exact_run != Format::exact_run - 1) continue;
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
        for (int i = 0; i < panels; ++i) block[c][i].end_run();
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < panels; ++i) {
      const PanelScales<Format> scales(p[i]);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        finish_block_at(scales, *x[c], block[c][i].total(scales, *x[c]),
                        sums + c * sums_stride + i * panel_rows);
      }
    }
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
    constexpr int together = panels_together<panels>;
    for (int i = 0; i < panels; i += together) {
      multiply_together<together, columns>(p + i, a, k, weights, sums + i * panel_rows);
    }
  }

 private:
  // Inlined, the loops around it would take registers that the sums need.
  template <int panels, int columns>
  [[gnu::noinline]] static void multiply_together(const SmallPanel* p, const Column* a,
                                                  std::size_t k, std::size_t weights, float* sums) {
    const BlockA32* x[columns];
    const std::int8_t* q[columns];
    F32x16 sum[columns][panels];
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], k / k_block);
      q[c] = x[c]->q;
      for (int i = 0; i < panels; ++i) sum[c][i] = load(sums + c * sums_stride + i * panel_rows);
    }
    constexpr int groups = Format::sub_block / 4;
    for (std::size_t at = 0; at < weights / Format::sub_block; ++at) {
      const std::size_t s = at / scales_of_32<Format>;
      const auto start = [&]([[maybe_unused]] int c) __attribute__((always_inline)) {
        if constexpr (Format::has_offset) return each_dword(offset_dot<Format>(*x[c], at));
        return each_dword(0);
      };
      I32x16 dot[columns][panels];
      multiply_groups<panels, columns, groups, Format::largest_q>(p, groups * at, q, start, dot);
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        const F32x16 d = load(p[i].d[at]);
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const F32x16 scale = sluice::kernels::multiply(d, each(x[c]->d[s]));
          sum[c][i] = multiply_add(to_float(dot[c][i]), scale, sum[c][i]);
          if constexpr (Format::has_min) {
            sum[c][i] = multiply_add(load(p[i].m[s]), each(x[c]->d_sums[s]), sum[c][i]);
          }
        }
      }
    }
    for (int c = 0; c < columns; ++c) {
      for (int i = 0; i < panels; ++i) store(sums + c * sums_stride + i * panel_rows, sum[c][i]);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_part.h"
