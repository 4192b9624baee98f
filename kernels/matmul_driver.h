// The loops over rows and columns around the kernels of one instruction set. Included by the file
// of each tier; everything here has internal linkage. Nothing here or in those files may
// instantiate an inline function with external linkage (std::min, for example): the linker keeps
// one copy for the whole program, and it could be the one compiled for AVX-512.
//
// Rows are multiplied in groups of panels_at_once panels, a constant of the tier: 2 if a broadcast
// activation should be used for 32 rows, else 1. For each group and each 256 weights of a row, the
// weights are unpacked once into the first-level cache and multiplied with all columns of a column
// block. The sums of the group stay in scratch meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/matmul.h"
#include "kernels/packed_order.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t k_block = 256;       // weights of a row that are unpacked together
constexpr std::size_t column_block = 256;  // columns whose activations stay in the L2 cache
static_assert(column_block % activation_tile == 0);
constexpr std::size_t cache_line = 64;
constexpr std::size_t sums_stride = panels_at_once * panel_rows;  // from one column to the next

// Minima and scales of 256 weights of 16 rows, for formats with integer sub-block scales (Q4_K...).
struct alignas(64) BlockScales {
  std::int16_t pair[8][panel_rows][2];  // of two sub-blocks: minima or scales (block_pairs)
  float d[panel_rows], dmin[panel_rows];
};

#ifdef SLUICE_MULTIPLIES_INTEGERS
using ScaleNumber = std::uint32_t;
#else
using ScaleNumber = float;
#endif

// The same with the weights: byte [k / 4][row][k % 4] of q is the unsigned weight k of a row.
struct alignas(64) IntegerPanel : BlockScales {
  std::uint8_t q[k_block / 4][panel_rows][4];
  ScaleNumber scale[16][panel_rows];  // of each sub-block, divided by the factor in q (scaled_up)
};

// Weights, scales and minima for formats with a float scale for each 32 weights (Q4_0 ... Q8_0),
// of which the first eight are used, or for each 16 (NVFP4).
struct alignas(64) SmallPanel {
  std::uint8_t q[k_block / 4][panel_rows][4];
  float d[16][panel_rows], m[8][panel_rows];
};

struct alignas(64) FloatPanel {
  float w[k_block][panel_rows];
};

// The contents of a thread's scratch.
template <typename Panel, typename Column>
struct Workspace {
  Panel panels[panels_at_once];
  Column columns[column_block];
  alignas(64) float sums[column_block][sums_stride];
};

// Consecutive rows that are computed together.
struct RowGroup {
  const std::byte* data;
  std::size_t first;  // row of the matrix
  int panels;         // 1 or panels_at_once
};

inline std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}
inline std::size_t larger(std::size_t a, std::size_t b) {
  return a > b ? a : b;
}

// Block i of a column: the activations from 256 i on.
template <typename Block>
[[gnu::always_inline]] inline const Block& block_at(const ActivationColumn<Block>& a,
                                                    std::size_t i) {
  return a.blocks[i * a.stride];
}

// A block of weights in the 16 rows of a panel, laid out as in the file.
struct FileRows {
  const std::byte* block;  // in the first row
  std::size_t row_bytes;
  const std::byte* ahead;  // the next bytes to prefetch
};

#ifdef __aarch64__
constexpr bool is_aarch64 = true;
#else
constexpr bool is_aarch64 = false;
#endif

// Whether a stream steps to a block whose odd bytes lie beside those of the one before it, rather
// than find its place anew. That saves instructions on aarch64; on a Zen 5 products of two and four
// columns of Q8_0 took a tenth longer.
constexpr bool steps_between_blocks = is_aarch64;

// Distances from the bytes read now to those to prefetch now, into each cache. 0: the bytes
// themselves, which is as good as nothing. So one code serves every policy. On aarch64 a second
// prefetch would be a tenth of the instructions of some products: there is one, into the first
// cache whichever is named.
struct Ahead {
  Ahead() = default;
  Ahead(const Prefetch& prefetch, std::size_t bytes) {
    const auto distance = static_cast<std::ptrdiff_t>(bytes);
    into_l1 = one_cache || prefetch.into == CacheLevel::l1 ? distance : 0;
    into_l2 = prefetch.into == CacheLevel::l2 ? distance : 0;
  }
  [[gnu::always_inline]] inline void prefetch_from(const std::byte* p) const {
    __builtin_prefetch(p + into_l1, 0, 3);
    if constexpr (!one_cache) __builtin_prefetch(p + into_l2, 0, 2);
  }
  // The same where p lies a constant distance behind the beginning of a block.
  [[gnu::always_inline]] inline void prefetch_from(const std::byte* block,
                                                   const std::byte* p) const {
    __builtin_prefetch(sum(block, into_l1) + (p - block), 0, 3);
    if constexpr (!one_cache) __builtin_prefetch(sum(block, into_l2) + (p - block), 0, 2);
  }

  static constexpr bool one_cache = is_aarch64;
  std::ptrdiff_t into_l1, into_l2;

 private:
  // What all lines of a block share, in a register: the compiler would add it up for each line.
  [[gnu::always_inline]] static inline const std::byte* sum(const std::byte* p,
                                                            std::ptrdiff_t bytes) {
    const std::byte* out;
#ifdef __aarch64__
    __asm__("add %0, %1, %2" : "=r"(out) : "r"(p), "r"(bytes));
#else
    __asm__("lea (%1,%2), %0" : "=r"(out) : "r"(p), "r"(bytes));
#endif
    return out;
  }
};

// The same in a packed panel (kernels/panel_packing.h).
struct PackedRows {
  const std::byte* words;
  const std::byte* odd;  // the bytes of the block that are not a whole word
  Ahead ahead;
};

// Moves `rows` to block `i` of a panel whose rows have `blocks` blocks each.
template <typename Format>
inline void go_to(FileRows& rows, const std::byte* panel, std::size_t, std::size_t i) {
  rows.block = panel + i * block_bytes<Format>;
}
template <typename Format>
inline void go_to(PackedRows& rows, const std::byte* panel, std::size_t blocks, std::size_t i) {
  using D = BlockDivision<Format>;
  constexpr std::size_t odd_bytes = panel_rows * D::odd_bytes;
  constexpr std::size_t word_bytes = panel_rows * D::bytes - odd_bytes;
  const std::size_t nth = i % D::blocks_together;
  const std::size_t together = smaller(D::blocks_together, blocks - (i - nth));
  const std::byte* first = panel + (i - nth) * panel_rows * D::bytes;
  rows.odd = first + nth * odd_bytes;
  rows.words = first + together * odd_bytes + nth * word_bytes;
}

// The same from the block before it, if there is one.
template <typename Format>
inline void step_to(PackedRows& rows, const std::byte* panel, std::size_t blocks, std::size_t i) {
  using D = BlockDivision<Format>;
  if (i % D::blocks_together == 0) return go_to<Format>(rows, panel, blocks, i);
  rows.odd += panel_rows * D::odd_bytes;
  rows.words += panel_rows * (D::bytes - D::odd_bytes);
}

// Prefetches the next `bytes` bytes of the group of panels that the thread reads next, into the L2
// cache. Called each time a few bytes have been read, so that prefetches are spread evenly: a burst
// of them would delay the loads that the current work waits for. Addresses beyond the end of the
// weights do no harm.
inline void read_ahead(FileRows& rows, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += cache_line) {
    __builtin_prefetch(rows.ahead + at, 0, 2);
  }
  rows.ahead += bytes;
}

// Asks for the next block of packed panels while the one before it is multiplied, some lines with
// each tile of columns. All of them at once would take as long as reading them, and while they are
// under way no product would be computed.
class BlockAhead {
 public:
  BlockAhead() = default;
  // `first`: the block in the first of the panels, which lie `apart`. It has `bytes` bytes, which
  // are divided among `columns` columns.
  BlockAhead(const Prefetch& prefetch, const std::byte* first, std::size_t apart, std::size_t bytes,
             std::size_t columns)
      : next_(first), apart_(apart), into_(prefetch.into) {
    const std::size_t lines = prefetch.bytes_ahead == 0 ? 0 : bytes / cache_line;
    lines_left_ = lines;
    per_column_ = (lines + columns - 1) / columns;
  }

  // Asks for the lines of `columns` columns.
  void ask(int panels, std::size_t columns) {
    const std::size_t lines = smaller(lines_left_, per_column_ * columns);
    for (int p = 0; p < panels; ++p) {
      const std::byte* line = next_ + static_cast<std::size_t>(p) * apart_;
      for (std::size_t i = 0; i < lines; ++i, line += cache_line) {
        if (into_ == CacheLevel::l1) __builtin_prefetch(line, 0, 3);
        if (into_ == CacheLevel::l2) __builtin_prefetch(line, 0, 2);
      }
    }
    next_ += lines * cache_line;
    lines_left_ -= lines;
  }

 private:
  const std::byte* next_ = nullptr;
  std::size_t apart_ = 0, lines_left_ = 0, per_column_ = 0;
  CacheLevel into_ = CacheLevel::l1;
};

// The loops for one kernel, reading from FileRows or PackedRows. Kernel has
//   Panel, Column                       what it unpacks to, and what it needs of a column
//   column(x, c)                        the Column of column c
//   unpack(rows, panel_data, size, k, panel)   unpacks 256 weights from k on, of rows of `size`
// and either
//   tile_columns                        how many columns it computes together at best, and
//   multiply<panels, columns>(panels, columns, k, weights, sums)   also for 4, 2 and 1 columns
// or, if it divides the columns itself,
//   multiply_all(panel, columns, count, k, weights, sums)           for one panel at a time
// where `sums` points to the sums of the first column; those of each next column follow sums_stride
// floats later.
template <typename Kernel, typename Rows>
class PanelProduct {
 public:
  using Panel = typename Kernel::Panel;
  using Work = Workspace<Panel, typename Kernel::Column>;
  static_assert(sizeof(Work) <= MatmulScratch::bytes);

  PanelProduct(const WeightRows& w, const MatmulScratch& scratch, const Prefetch& prefetch)
      : w_(w), work_(*reinterpret_cast<Work*>(scratch.data)), prefetch_(prefetch) {}

  // y = w x for at least 16 rows. If the number of rows is not a multiple of 16, the last panel
  // overlaps the one before it: the shared rows are computed twice, with the same result.
  void run(const Activations& x, float* y, std::size_t y_stride) {
    const std::size_t all_columns = x.columns();
    for (std::size_t c = 0; c < all_columns; c += column_block) {
      count_ = smaller(column_block, all_columns - c);
      for (std::size_t i = 0; i < count_; ++i) work_.columns[i] = Kernel::column(x, c + i);
      for (std::size_t row = 0; row < w_.rows;) {
        const int panels = w_.rows - row >= panels_at_once * panel_rows ? panels_at_once : 1;
        const std::size_t first = smaller(row, w_.rows - panel_rows);
        multiply_group({w_.data + first * w_.row_bytes, first, panels}, y + c * y_stride, y_stride);
        row = first + panels * panel_rows;
      }
    }
  }

 private:
  void start(FileRows& rows, const std::byte* next_group) const {
    rows = {nullptr, w_.row_bytes, next_group};
  }
  void start(PackedRows& rows, const std::byte*) const {
    rows = {nullptr, nullptr, Ahead(prefetch_, asks_between_tiles ? 0 : prefetch_.bytes_ahead)};
  }

  // Whether the next block is asked for between tiles, and not while this one is unpacked.
  static constexpr bool asks_between_tiles = std::is_same_v<Rows, PackedRows> && requires {
    Kernel::tile_columns;
  };

  // The block behind that of the weights from k on: of the same panels, or of the next.
  BlockAhead block_behind(const RowGroup& group, std::size_t k) const {
    const std::size_t panel_bytes = panel_rows * w_.row_bytes;
    const std::size_t block_bytes = panel_bytes * smaller(k_block, w_.columns) / w_.columns;
    const bool is_last = k + k_block >= w_.columns;
    const std::size_t offset =
        is_last ? group.panels * panel_bytes : (k / k_block + 1) * block_bytes;
    return {prefetch_, group.data + offset, panel_bytes, block_bytes, count_};
  }

  void multiply_group(const RowGroup& group, float* y, std::size_t y_stride) {
    // Kernels may add to the sums of a whole tile, even if it has fewer columns.
    const std::size_t tiles = (count_ + activation_tile - 1) / activation_tile;
    std::memset(work_.sums, 0, tiles * activation_tile * sizeof work_.sums[0]);
    const std::size_t panel_bytes = panel_rows * w_.row_bytes;
    Rows rows;
    start(rows, group.data + group.panels * panel_bytes);
    for (std::size_t k = 0; k < w_.columns; k += k_block) {
      for (int p = 0; p < group.panels; ++p) {
        Kernel::unpack(rows, group.data + p * panel_bytes, w_.columns, k, work_.panels[p]);
      }
      const std::size_t weights = smaller(k_block, w_.columns - k);
      if constexpr (asks_between_tiles) ahead_ = block_behind(group, k);
      if (group.panels == 1) multiply_columns<1>(k, weights);
      if constexpr (panels_at_once > 1) {
        if (group.panels > 1) multiply_columns<panels_at_once>(k, weights);
      }
    }
    // Copies of constant size: for others the compiler would call memcpy, which is slow.
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t row = 0; row < group.panels * panel_rows; row += panel_rows) {
        std::memcpy(y + i * y_stride + group.first + row, work_.sums[i] + row,
                    panel_rows * sizeof(float));
      }
    }
  }

  // Adds the products of the unpacked block to the sums of all columns, widest tiles first.
  template <int panels>
  void multiply_columns(std::size_t k, std::size_t weights) {
    if constexpr (requires { Kernel::tile_columns; }) {
      std::size_t i = 0;
      multiply_tiles<panels, Kernel::tile_columns>(i, k, weights);
      if constexpr (Kernel::tile_columns > 4) multiply_tiles<panels, 4>(i, k, weights);
      if constexpr (Kernel::tile_columns > 2) multiply_tiles<panels, 2>(i, k, weights);
      multiply_tiles<panels, 1>(i, k, weights);
    } else {
      static_assert(panels == 1);
      Kernel::multiply_all(work_.panels[0], work_.columns, count_, k, weights, work_.sums[0]);
    }
  }

  // Multiplies as many tiles of `columns` columns as there are from column i on; moves i past them.
  template <int panels, int columns>
  void multiply_tiles(std::size_t& i, std::size_t k, std::size_t weights) {
    for (; i + columns <= count_; i += columns) {
      if constexpr (asks_between_tiles) ahead_.ask(panels, columns);
      Kernel::template multiply<panels, columns>(work_.panels, work_.columns + i, k, weights,
                                                 work_.sums[i]);
    }
  }

  const WeightRows& w_;
  Work& work_;
  Prefetch prefetch_;
  BlockAhead ahead_;
  std::size_t count_ = 0;  // columns of the current column block
};

// y = w x for rows laid out as in the file, or packed.
template <typename Kernel>
void multiply_panels(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                     const MatmulScratch& scratch, const Prefetch& prefetch) {
  if (w.is_packed) {
    return PanelProduct<Kernel, PackedRows>(w, scratch, prefetch).run(x, y, y_stride);
  }
  PanelProduct<Kernel, FileRows>(w, scratch, prefetch).run(x, y, y_stride);
}

}  // namespace
}  // namespace sluice::kernels
