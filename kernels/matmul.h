// Weights times activations: y[c][r] = sum_k w[r][k] x[c][k], for quantised rows w and a few or
// many columns x. Weights are laid out as in a GGUF file, or packed (kernels/panel_packing.h).
//
// The unit of work is a panel of 16 rows. A panel is unpacked 256 weights of each row at a time to
// unsigned bytes, laid out [k / 4][row][k % 4], so that one vector lane is one row: `vpdpbusd`
// multiplies four neighbouring weights of 16 rows with four activations that are broadcast, and no
// sum crosses a lane. An unpacked block is used for all columns.
//
// The float operations of one (row, column) are the same, in the same order, for any number of
// columns, any split into row ranges and any tier (kernels/quantise.h lists the formats of a form):
//   integer scales (a256)  block = the sum of scale * dot over its sub-blocks, an exact integer
//                          below 2^28; t = block * d; with minima, whose min_dot is exact too,
//                          t = fma(-min_dot, dmin, t); y = fma(t, d_x, y)
//   float scales (a32)     y = fma(dot, d * d_x, y); with minima: y = fma(m, d_x * sum_x, y).
//                          MXFP4, NVFP4: with doubled weights and d half of the scale
//   F32, F16, BF16         for each 256 columns: four partial sums by k % 4 with fma, then
//                          y = y + ((s0 + s1) + (s2 + s3))
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"
#include "kernels/core_policy.h"
#include "kernels/quantise.h"

namespace sluice::kernels {

inline constexpr std::size_t panel_rows = 16;

// Width of a tile of activations, used if there are more than half as many columns.
inline constexpr std::size_t activation_tile = 16;

// Columns of activations, in each form that quantise() was called for, in the caller's memory.
//
// Quantised columns lie in tiles of activation_tile columns; up to half as many form one tile. A
// tile has first block 0 of each of its columns, then block 1 of each, and so on. So a kernel that
// multiplies a block of weights with a tile reads one piece of memory. Kernels may also read the
// unused columns of the last tile: in a32 their scales are zero once the last column is quantised,
// all their other numbers are undefined.
class Activations {
 public:
  // Size in bytes of a buffer for `columns` columns of `size` elements, with all forms.
  static std::size_t buffer_bytes(std::size_t size, std::size_t columns);

  // x: [columns][x_stride] floats, of which the first `size` of each row are used. buffer:
  // buffer_bytes(size, columns) bytes, 64-byte aligned. The caller owns both. Quantised forms are
  // not filled yet.
  Activations(const float* x, std::size_t x_stride, std::size_t size, std::size_t columns,
              std::byte* buffer);

  // Fills one form of one column; different columns may be filled by different threads.
  void quantise(const QuantiseKernels& kernels, ActivationForm form, std::size_t column) const;

  // Defined out of line, because the files of the tiers call them (see matmul_driver.h).
  std::size_t size() const;
  std::size_t columns() const;
  const float* f32(std::size_t column) const;
  ColumnA256 a256(std::size_t column) const;
  ColumnA32 a32(std::size_t column) const;

 private:
  void clear_rest_of_tile() const;
  template <typename Block>
  ActivationColumn<Block> column_of(Block* first, std::size_t column) const;

  const float* x_;
  std::size_t x_stride_;
  std::size_t size_;
  std::size_t columns_;
  // Each form has its own memory, because matrices that share their activations may have different
  // types (Q and V of a mixed file, for example).
  BlockA256* a256_;
  BlockA32* a32_;
};

// Consecutive rows of a weight matrix.
struct WeightRows {
  BlockType type;
  const std::byte* data;  // first row
  std::size_t rows;
  std::size_t columns;    // weights per row
  std::size_t row_bytes;  // row_bytes(type, columns)
  // Whether the rows are packed (kernels/panel_packing.h) rather than laid out as in a GGUF file.
  // Packed rows are whole panels, and need a tier with `reads_packed`.
  bool is_packed = false;
};

// Scratch for one thread.
struct MatmulScratch {
  static constexpr std::size_t bytes = 96 * 1024;
  std::byte* data;  // 64-byte aligned
};

struct MatmulKernels {
  // y[c * y_stride + r] = row r times column c, for all rows of w and all columns of x.
  void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                const MatmulScratch& scratch) const;

  void (*kernel)(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                 const MatmulScratch& scratch, const CorePolicy& policy);
  bool reads_packed = false;  // whether this tier has kernels for packed panels
  CorePolicy policy{};
};

}  // namespace sluice::kernels
