// The part of the matrix product that all tiers share: the layout of activations in memory.
#include "kernels/matmul.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace sluice::kernels {
namespace {

constexpr std::size_t block_size = 256;

std::size_t blocks_of(std::size_t size) {
  return (size + block_size - 1) / block_size;
}

// The width of tiles, in columns. A few columns form one narrower tile.
std::size_t tile_of(std::size_t columns) {
  return columns > activation_tile / 2 ? activation_tile : columns;
}

// How many blocks one form has, including those that fill up the last tile.
std::size_t blocks_of_all(std::size_t size, std::size_t columns) {
  const std::size_t tile = std::max<std::size_t>(tile_of(columns), 1);
  return blocks_of(size) * ((columns + tile - 1) / tile * tile);
}

}  // namespace

std::size_t Activations::buffer_bytes(std::size_t size, std::size_t columns) {
  return blocks_of_all(size, columns) * (sizeof(BlockA256) + sizeof(BlockA32));
}

Activations::Activations(const float* x, std::size_t x_stride, std::size_t size,
                         std::size_t columns, std::byte* buffer)
    : x_(x),
      x_stride_(x_stride),
      size_(size),
      columns_(columns),
      a256_(reinterpret_cast<BlockA256*>(buffer)),
      a32_(reinterpret_cast<BlockA32*>(a256_ + blocks_of_all(size, columns))) {
  assert(reinterpret_cast<std::uintptr_t>(buffer) % alignof(BlockA256) == 0);
}

void Activations::quantise(const QuantiseKernels& kernels, ActivationForm form,
                           std::size_t column) const {
  if (form == ActivationForm::a256) kernels.a256(f32(column), size_, a256(column));
  if (form == ActivationForm::a32) kernels.a32(f32(column), size_, a32(column));
  if (form == ActivationForm::a32 && column + 1 == columns_) clear_rest_of_tile();
}

// Clears the scales of unused columns (a32). Old contents of this memory could be denormal numbers,
// which make a product many times slower.
void Activations::clear_rest_of_tile() const {
  const std::size_t tile = tile_of(columns_);
  for (std::size_t c = columns_; c % tile != 0; ++c) {
    const ColumnA32 rest = a32(c);
    for (std::size_t i = 0; i < blocks_of(size_); ++i) {
      BlockA32& block = rest.blocks[i * rest.stride];
      std::fill(std::begin(block.d), std::end(block.d), 0.0f);
      std::fill(std::begin(block.d_sums), std::end(block.d_sums), 0.0f);
    }
  }
}

std::size_t Activations::size() const {
  return size_;
}

std::size_t Activations::columns() const {
  return columns_;
}

const float* Activations::f32(std::size_t column) const {
  return x_ + column * x_stride_;
}

template <typename Block>
ActivationColumn<Block> Activations::column_of(Block* first, std::size_t column) const {
  const std::size_t tile = tile_of(columns_);
  return {first + column / tile * tile * blocks_of(size_) + column % tile, tile};
}

ColumnA256 Activations::a256(std::size_t column) const {
  return column_of(a256_, column);
}

ColumnA32 Activations::a32(std::size_t column) const {
  return column_of(a32_, column);
}

void MatmulKernels::multiply(const WeightRows& w, const Activations& x, float* y,
                             std::size_t y_stride, const MatmulScratch& scratch) const {
  kernel(w, x, y, y_stride, scratch, policy);
}

}  // namespace sluice::kernels
