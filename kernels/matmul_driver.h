// The loops around the kernels of one instruction set: which rows and columns meet when. Included
// by the file of each tier, inside which everything here has internal linkage. Nothing here or in
// those files may instantiate an inline function with external linkage (std::min, say): the linker
// keeps one copy for the whole program, and it could be the one compiled for AVX-512.
//
// Rows go in groups of panels_at_once panels, which the tier has defined: 2 where an activation
// that was broadcast should serve 32 rows, or 1. For each group and each 256 weights of a row, the
// weights are unpacked once into the first-level cache and multiplied with all columns of a column
// block; the sums of the group live in scratch meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/packed_order.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t k_block = 256;       // weights of a row that are unpacked together
constexpr std::size_t column_block = 256;  // columns whose activations stay in the L2 cache
static_assert(column_block % activation_tile == 0);
constexpr std::size_t cache_line = 64;
constexpr std::size_t sums_stride = panels_at_once * panel_rows;  // from one column to the next

// What 256 weights of 16 rows with integer sub-block scales (Q4_K, say) have once.
struct alignas(64) BlockScales {
  std::int16_t min[8][panel_rows][2];  // of sub-blocks (0 2) (1 3) (4 6) (5 7) and so on
  float d[panel_rows], dmin[panel_rows];
};

// Such weights: byte [k / 4][row][k % 4] of q is the unsigned weight.
struct alignas(64) IntegerPanel : BlockScales {
  std::uint8_t q[k_block / 4][panel_rows][4];
  float scale[16][panel_rows];  // of each sub-block, divided by what q is scaled up by
};

// The same for weights with a float scale per 32 (Q4_0 ... Q8_0).
struct alignas(64) SmallPanel {
  std::uint8_t q[k_block / 4][panel_rows][4];
  float d[8][panel_rows], m[8][panel_rows];
};

struct alignas(64) FloatPanel {
  float w[k_block][panel_rows];
};

// What stands in the scratch of a thread.
template <typename Panel, typename Column>
struct Workspace {
  Panel panels[panels_at_once];
  Column columns[column_block];
  alignas(64) float sums[column_block][sums_stride];
};
static_assert(sizeof(Workspace<IntegerPanel, ColumnA256>) <= MatmulScratch::bytes);
static_assert(sizeof(Workspace<SmallPanel, ColumnA32>) <= MatmulScratch::bytes);
static_assert(sizeof(Workspace<FloatPanel, const float*>) <= MatmulScratch::bytes);

// A run of rows that is computed together.
struct RowGroup {
  const std::byte* data;
  std::size_t first;  // row of the matrix
  int panels;         // 1 or panels_at_once
};

inline std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

// Activations 256 i and up of a column.
template <typename Block>
[[gnu::always_inline]] inline const Block& block_at(const ActivationColumn<Block>& a,
                                                    std::size_t i) {
  return a.blocks[i * a.stride];
}

// A block of weights in the 16 rows of a panel, as they stand in the file, and what this thread
// reads after them.
struct FileRows {
  const std::byte* block;  // in the first row
  std::size_t row_bytes;
  const std::byte* ahead;
};

// The same in a packed panel (kernels/panel_packing.h).
struct PackedRows {
  const std::byte* words;
  const std::byte* odd;  // the bytes of the block that are no whole word
  std::ptrdiff_t ahead;  // from what is read now to what to ask for now
};

// How far ahead of its reads a thread asks for packed weights: measured; less does not cover the
// time that memory takes, more does not survive in the first-level cache.
constexpr std::size_t ahead_bytes = 2048;

// The division of a block of `Format`.
template <typename Format>
constexpr BlockDivision division = {Format::type, Format::block_bytes};

// Positions `rows` at block `i` of a panel, each of whose rows has `blocks` blocks.
template <typename Format>
inline void go_to(FileRows& rows, const std::byte* panel, std::size_t, std::size_t i) {
  rows.block = panel + i * Format::block_bytes;
}
template <typename Format>
inline void go_to(PackedRows& rows, const std::byte* panel, std::size_t blocks, std::size_t i) {
  constexpr BlockDivision d = division<Format>;
  constexpr std::size_t odd_bytes = panel_rows * d.odd_bytes();
  constexpr std::size_t word_bytes = panel_rows * Format::block_bytes - odd_bytes;
  const std::size_t nth = i % d.blocks_together();
  const std::size_t together = smaller(d.blocks_together(), blocks - (i - nth));
  const std::byte* first = panel + (i - nth) * panel_rows * Format::block_bytes;
  rows.odd = first + nth * odd_bytes;
  rows.words = first + together * odd_bytes + nth * word_bytes;
}

// Asks for the next bytes that the thread will read, some pair of panels ahead, to come into the
// L2 cache. Called with each few bytes that are read, so that the requests are spread evenly: a
// burst of them would hold up the loads that the work at hand is waiting for. Addresses beyond the
// end of the weights do no harm.
inline void read_ahead(FileRows& rows, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += cache_line) {
    __builtin_prefetch(rows.ahead + at, 0, 2);
  }
  rows.ahead += bytes;
}

// The loops for one kernel, reading from FileRows or PackedRows. Kernel has
//   Panel, Column                       what it unpacks to, and what it needs of a column
//   column(x, c)                        the Column of column c
//   unpack(rows, panel_data, size, k, panel)   256 weights from k on, of rows of `size`
// and either
//   tile_columns                        columns that it likes to compute together, and
//   multiply<panels, columns>(panels, columns, k, weights, sums)   with 4, 2 and 1 for the rest
// or, when it divides the columns itself,
//   multiply_all(panel, columns, count, k, weights, sums)           for one panel at once
// where sums points to the sums of the first column, and those of the next follow sums_stride
// floats later.
template <typename Kernel, typename Rows>
class PanelProduct {
 public:
  using Panel = typename Kernel::Panel;
  using Work = Workspace<Panel, typename Kernel::Column>;

  PanelProduct(const WeightRows& w, const MatmulScratch& scratch)
      : w_(w), work_(*reinterpret_cast<Work*>(scratch.data)) {}

  // y = w x for at least 16 rows. The last panel overlaps the one before it where the rows are not
  // a multiple of 16: its rows are computed twice, with the same result.
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
  static void start(FileRows& rows, std::size_t row_bytes, const std::byte* next_group) {
    rows = {nullptr, row_bytes, next_group};
  }
  static void start(PackedRows& rows, std::size_t, const std::byte*) {
    rows = {nullptr, nullptr, ahead_bytes};
  }

  void multiply_group(const RowGroup& group, float* y, std::size_t y_stride) {
    // Kernels may add to the sums of a whole tile, also where it has fewer columns.
    const std::size_t tiles = (count_ + activation_tile - 1) / activation_tile;
    std::memset(work_.sums, 0, tiles * activation_tile * sizeof work_.sums[0]);
    const std::size_t panel_bytes = panel_rows * w_.row_bytes;
    Rows rows;
    start(rows, w_.row_bytes, group.data + group.panels * panel_bytes);
    for (std::size_t k = 0; k < w_.columns; k += k_block) {
      for (int p = 0; p < group.panels; ++p) {
        Kernel::unpack(rows, group.data + p * panel_bytes, w_.columns, k, work_.panels[p]);
      }
      const std::size_t weights = smaller(k_block, w_.columns - k);
      if (group.panels == 1) multiply_columns<1>(k, weights);
      if constexpr (panels_at_once > 1) {
        if (group.panels > 1) multiply_columns<panels_at_once>(k, weights);
      }
    }
    // Copies of a size that the compiler knows: it would call for slow ones else.
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t row = 0; row < group.panels * panel_rows; row += panel_rows) {
        std::memcpy(y + i * y_stride + group.first + row, work_.sums[i] + row,
                    panel_rows * sizeof(float));
      }
    }
  }

  // Adds the product of the unpacked block to the sums of all columns, widest tile first.
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

  // As many tiles of `columns` columns from column i on as there are; moves i behind them.
  template <int panels, int columns>
  void multiply_tiles(std::size_t& i, std::size_t k, std::size_t weights) {
    for (; i + columns <= count_; i += columns) {
      Kernel::template multiply<panels, columns>(work_.panels, work_.columns + i, k, weights,
                                                 work_.sums[i]);
    }
  }

  const WeightRows& w_;
  Work& work_;
  std::size_t count_ = 0;  // columns of the current column block
};

// y = w x for rows in the layout of the file, or packed ones.
template <typename Kernel>
void multiply_panels(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                     const MatmulScratch& scratch) {
  if (w.is_packed) return PanelProduct<Kernel, PackedRows>(w, scratch).run(x, y, y_stride);
  PanelProduct<Kernel, FileRows>(w, scratch).run(x, y, y_stride);
}

}  // namespace
}  // namespace sluice::kernels
