// Packed weights times a few columns: decoding of one or several sequences. Included by the file of
// each tier after matmul_formats.h, when it has also defined
//   few_columns                       the most columns that count as few, 4 or 8
//   few_sums                          how many sums, of a slot and a column each, DotSink has
//                                     registers for
//   DotSink<Format, slots, columns>   a sink of weights_of<stage>() that multiplies them with
//                                     columns
//       explicit DotSink(const std::int8_t* const (&q)[columns])   activations of the block
//       I32x16 dot(slot, column)                                   the exact sum of the products
//   StageSink<Format, stage, columns> the one below, only where SLUICE_SUMS_WORDS is defined: its
//                                     products are scaled as they are summed
//
// With few columns most of the time goes into reading the weights. They are multiplied as soon as
// they are read, so that loads and arithmetic always overlap. The code works on four panels in
// turn: a processor prefetches some lines of each of several streams, but with one stream not far
// enough to keep the memory busy.
#pragma once

#include <utility>

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

// A few packed panels that follow each other in memory; each is read as a stream of its own.
template <typename Format, int panels>
struct PanelStreams {
  const std::byte* first;
  std::size_t panel_bytes;
  std::size_t blocks;  // of a row
  const Prefetch& prefetch;
  PackedRows rows[panels];

  // Moves all streams to block i and sets how far ahead they prefetch: whole blocks, so that each
  // cache line is prefetched once. At the end of a panel a stream does not go on with the next
  // panel, which another stream is reading, but with the one `panels` further on.
  void go_to_block(std::size_t i) {
    constexpr std::size_t bytes = panel_rows * block_bytes<Format>;
    const std::size_t blocks_ahead = (prefetch.bytes_ahead + bytes - 1) / bytes;
    std::size_t ahead = blocks_ahead * bytes;
    if (i + blocks_ahead >= blocks) ahead += (panels - 1) * panel_bytes;
    for (std::size_t p = 0; p < panels; ++p) {
      if constexpr (steps_between_blocks) {
        step_to<Format>(rows[p], first + p * panel_bytes, blocks, i);
      } else {
        go_to<Format>(rows[p], first + p * panel_bytes, blocks, i);
      }
      rows[p].ahead = Ahead(prefetch, ahead);
    }
  }
};

// Sums of a group of panels for each column.
template <int panels, int columns>
struct Sums {
  F32x16 of[panels][columns];

  Sums() {
    for (auto& panel : of) {
      for (F32x16& sum : panel) sum = each(0);
    }
  }
  // Stores the sums of the first `count` columns.
  void store_to(float* y, std::size_t y_stride, std::size_t count) const {
    for (std::size_t p = 0; p < panels; ++p) {
      for (std::size_t c = 0; c < count; ++c) store(y + c * y_stride + p * panel_rows, of[p][c]);
    }
  }
};

#ifndef SLUICE_SUMS_WORDS

// A sink of the weights of a stage whose products are added to the sums of a block.
template <typename Format, int stage, int columns>
class StageSink {
 public:
  using Scales = typename Format::Scales;

  StageSink(const Scales& scales, const std::int8_t* const (&q)[columns])
      : scales_(scales), dots_(q) {}

  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
    dots_(slot, group, q);
  }
  // `a` are the activations of the columns.
  [[gnu::always_inline]] inline void add_to(BlockSum<Format> (&block)[columns],
                                            const BlockA256* const (&a)[columns]) const {
#pragma GCC unroll 4
    for (int slot = 0; slot < Format::slots; ++slot) {
      const int s = Format::sub_block_of(stage, slot);
      const auto scale = block_scale<Format>(scales_, s);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        I32x16 dot = dots_.dot(slot, c);
        if constexpr (Format::has_offset) dot = add(dot, Format::offset_dot(*a[c], s));
        block[c].add_scaled(dot, scale);
        if ((stage * Format::slots + slot + 1) % Format::exact_run == 0) block[c].end_run();
      }
    }
  }

 private:
  const Scales& scales_;
  DotSink<Format, Format::slots, columns> dots_;
};

#endif

template <typename Format, int panels, int columns>
struct FewIntegerColumns {
  static constexpr std::size_t weights_per_block = k_block;
  using Scales = typename Format::Scales;

  // Loops over panels are not unrolled: their sums would not fit into registers anyway.
  static void run(PanelStreams<Format, panels>& streams, const ColumnA256* a,
                  Sums<panels, columns>& sums) {
    for (std::size_t i = 0; i < streams.blocks; ++i) {
      streams.go_to_block(i);
      const auto scales = read_scales(streams, std::make_index_sequence<panels>());
      BlockSum<Format> block[panels][columns];
      const BlockA256* x[columns];
      const std::int8_t* q[columns];
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
        x[c] = &block_at(a[c], i);
        q[c] = x[c]->q;
      }
      add_stage<0>(streams, scales.of, x, q, block);
      add_stage<1>(streams, scales.of, x, q, block);
      add_stage<2>(streams, scales.of, x, q, block);
      add_stage<3>(streams, scales.of, x, q, block);
      for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 8
        for (int c = 0; c < columns; ++c) {
          const F32x16 total = block[p][c].total(scales.of[p], *x[c]);
          finish_block<Format>(scales.of[p], *x[c], total, sums.of[p][c]);
        }
      }
    }
  }

 private:
  struct ScalesOfPanels {
    Scales of[panels];
  };

  // Scales are made where they stay: the compiler would copy them eight bytes at a time.
  template <std::size_t... p>
  [[gnu::always_inline]] static inline ScalesOfPanels read_scales(
      PanelStreams<Format, panels>& streams, std::index_sequence<p...>) {
    return {{Scales::template read<Format>(streams.rows[p])...}};
  }

  template <int stage>
  [[gnu::always_inline]] static inline void add_stage(PanelStreams<Format, panels>& streams,
                                                      const Scales (&scales)[panels],
                                                      const BlockA256* const (&x)[columns],
                                                      const std::int8_t* const (&q)[columns],
                                                      BlockSum<Format> (&block)[panels][columns]) {
    for (int p = 0; p < panels; ++p) {
      StageSink<Format, stage, columns> sink(scales[p], q);
      const PackedRows rows = streams.rows[p];
      Format::template weights_of<stage>(rows, scales[p], sink);
      sink.add_to(block[p], x);
    }
  }
};

template <typename Format, int panels, int columns>
struct FewSmallColumns {
  static constexpr std::size_t weights_per_block = Format::weights;

  static void run(PanelStreams<Format, panels>& streams, const ColumnA32* a,
                  Sums<panels, columns>& sums) {
    for (std::size_t i = 0; i < streams.blocks; ++i) {
      streams.go_to_block(i);
      for_each_group<Format>([&](auto group) __attribute__((always_inline)) {
        add_block_group<group>(streams, i, a, sums);
      });
    }
  }

 private:
  template <int group>
  [[gnu::always_inline]] static inline void add_block_group(PanelStreams<Format, panels>& streams,
                                                            std::size_t i, const ColumnA32* a,
                                                            Sums<panels, columns>& sums) {
    const std::size_t nth = i * groups_of<Format> + group;
    const std::size_t at = nth % 8;  // in its block of activations
    const BlockA32* x[columns];
    const std::int8_t* q[columns];
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      x[c] = &block_at(a[c], nth / 8);
      q[c] = x[c]->q + at * 32;
    }
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const auto scales = scales_of_group<Format, group>(streams.rows[p]);
      DotSink<Format, scales_of_32<Format>, columns> sink(q);
      Format::template weights_of<group>(streams.rows[p], sink);
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
        for (int n = 0; n < scales_of_32<Format>; ++n) {
          add_dot(scale_of(scales, n), sink.dot(n, c), *x[c], at, n, sums.of[p][c]);
        }
        if constexpr (Format::has_min) {
          sums.of[p][c] = multiply_add(scales.m, each(x[c]->d_sums[at]), sums.of[p][c]);
        }
      }
    }
  }

  // `nth` of the scales of 32 weights.
  [[gnu::always_inline]] static inline void add_dot(F32x16 scale, I32x16 dot, const BlockA32& a,
                                                    std::size_t at, int nth, F32x16& sum) {
    if constexpr (Format::has_offset) {
      const std::size_t sub_block = scales_of_32<Format> * at + static_cast<std::size_t>(nth);
      dot = add(dot, each_dword(offset_dot<Format>(a, sub_block)));
    }
    sum = multiply_add(to_float(dot), multiply(scale, each(a.d[at])), sum);
  }
};

// Multiplies as many panels and columns together as have sums that fit into registers. Further
// columns then read the 256 weights of a panel from the first-level cache.
template <typename Format, int panels, int columns>
struct FewFloatColumns {
  static constexpr std::size_t weights_per_block = 1;

  static void run(PanelStreams<Format, panels>& streams, const float* const* x,
                  Sums<panels, columns>& sums) {
    for (std::size_t k = 0; k < streams.blocks; k += k_block) {
      const std::size_t weights = smaller(k_block, streams.blocks - k);
      for (int p = 0; p < panels; p += panels_together) {
        for (int c = 0; c < columns; c += columns_together) {
          add_products(streams, k, weights, p, x + c, &sums.of[p][c]);
        }
      }
    }
  }

 private:
  static constexpr int columns_together = columns < float_sums ? columns : float_sums;
  static constexpr int panels_together =
      panels < float_sums / columns_together ? panels : float_sums / columns_together;
  static_assert(columns % columns_together == 0 && panels % panels_together == 0);

  // Multiplies panels_together panels from `first` on. sums: [panel][columns].
  [[gnu::always_inline]] static inline void add_products(
      const PanelStreams<Format, panels>& streams, std::size_t k, std::size_t weights, int first,
      const float* const* x, F32x16* sums) {
    const std::byte* w[panels_together];
    const float* from_k[columns_together];
    F32x16 sum[panels_together][columns_together];
    for (int c = 0; c < columns_together; ++c) from_k[c] = x[c] + k;
    for (int p = 0; p < panels_together; ++p) {
      w[p] = streams.first + static_cast<std::size_t>(first + p) * streams.panel_bytes +
             k * panel_rows * block_bytes<Format>;
      for (int c = 0; c < columns_together; ++c) sum[p][c] = sums[p * columns + c];
    }
    const Ahead ahead(streams.prefetch, streams.prefetch.bytes_ahead);
    add_float_products<Format, true>(w, ahead, weights, from_k, sum);
    for (int p = 0; p < panels_together; ++p) {
      for (int c = 0; c < columns_together; ++c) sums[p * columns + c] = sum[p][c];
    }
  }
};

// The product of formats that index grids, in tiers that have one of their own.
template <typename Format, int panels, int columns>
struct FewGridColumns;

#ifdef SLUICE_HAS_GRID_PRODUCT
template <typename Format>
constexpr bool has_grid_product = requires {
  Format::entries;
};
#else
template <typename Format>
constexpr bool has_grid_product = false;
#endif

// The most columns of a format that are multiplied as weights are read: those whose sums have
// registers. With more it is faster to unpack a panel first; but sums of words are so few that two
// columns gain even where some of theirs go through memory.
template <typename Format>
constexpr std::size_t few_columns_of = [] {
  constexpr ActivationForm form = form_of<Format>();
  if constexpr (form == ActivationForm::f32 || has_grid_product<Format>) {
    return few_columns;
  } else {
    constexpr int slots = [] {
      if constexpr (form == ActivationForm::a256)
        return Format::slots;
      else
        return scales_of_32<Format>;
    }();
    std::size_t most = few_columns;
#ifdef SLUICE_SUMS_WORDS
    constexpr std::size_t least = 2;
#else
    constexpr std::size_t least = 1;
#endif
    while (most > least && most * slots > few_sums) most /= 2;
    return most;
  }
}();

// y = w x for packed rows and one to `most` columns. Product is one of the three above. Each
// combination of panels and columns is compiled separately, so there are only a few.
template <template <typename, int, int> typename Product, typename Format, std::size_t most,
          typename Column>
class FewColumns {
 public:
  // `columns` has few_columns entries, of which the first `count` are wanted.
  FewColumns(const WeightRows& w, const Column* columns, std::size_t count, float* y,
             std::size_t y_stride)
      : w_(w), columns_(columns), count_(count), y_(y), y_stride_(y_stride) {}

  void run(const Prefetch& prefetch) {
    if (count_ == 1) return run_columns<4, 1>(prefetch);
    if constexpr (most >= 2) {
      if (count_ == 2) return run_columns<4, 2>(prefetch);
    }
    if constexpr (most >= 4) {
      if (count_ <= 4) return run_columns<4, 4>(prefetch);
    }
    // With so many columns arithmetic takes as long as reading, and one stream is enough.
    if constexpr (most >= 8) run_columns<1, 8>(prefetch);
  }

 private:
  // Multiplies groups of `panels` panels, and the panels that remain one by one.
  template <int panels, int columns>
  void run_columns(const Prefetch& prefetch) {
    std::size_t row = 0;
    if (prefetch.panels_in_turn > 1) run_groups<panels, columns>(row, prefetch);
    run_groups<1, columns>(row, prefetch);
  }

  template <int panels, int columns>
  void run_groups(std::size_t& row, const Prefetch& prefetch) {
    using Work = Product<Format, panels, columns>;
    constexpr std::size_t rows = panels * panel_rows;
    for (; row + rows <= w_.rows; row += rows) {
      PanelStreams<Format, panels> streams{w_.data + row * w_.row_bytes,
                                           panel_rows * w_.row_bytes,
                                           w_.columns / Work::weights_per_block,
                                           prefetch,
                                           {}};
      Sums<panels, columns> sums;
      Work::run(streams, columns_, sums);
      sums.store_to(y_ + row, y_stride_, count_);
    }
  }

  const WeightRows& w_;
  const Column* columns_;
  std::size_t count_;
  float* y_;
  std::size_t y_stride_;
};

// y = w x for packed rows and one to `most` columns; column(x, c) is the Column of column c.
template <template <typename, int, int> typename Product, typename Format,
          std::size_t most = few_columns, typename Column>
void multiply_few(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                  const Prefetch& prefetch, Column (*column)(const Activations&, std::size_t)) {
  Column columns[few_columns];
  for (std::size_t c = 0; c < few_columns; ++c) columns[c] = column(x, smaller(c, x.columns() - 1));
  FewColumns<Product, Format, most, Column>(w, columns, x.columns(), y, y_stride).run(prefetch);
}

}  // namespace
}  // namespace sluice::kernels
