// The matrix product in plain C++, row by row and column by column: the definition that the other
// tiers reproduce bit for bit. Slow, and meant to be read.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/dequantise.h"
#include "kernels/formats/all.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t block = 256;

template <typename Block>
Block load(const std::byte* p) {
  Block b;
  std::memcpy(&b, p, sizeof b);
  return b;
}

// Returns `sum` plus the product of one block of a row with one column.
template <typename Format, int sub_block>
float add_block(const IntegerBlock<sub_block>& b, const ColumnA256& column, std::size_t i,
                float sum) {
  const BlockA256& a = column.blocks[i * column.stride];
  int block_sum = 0;
  for (int k = 0; k < b.weights; ++k) block_sum += b.scale[k / sub_block] * b.q[k] * a.q[k];
  float scaled = static_cast<float>(block_sum) * b.d;
  if constexpr (Format::has_min) {
    int min_dot = 0;
    for (int k = 0; k < b.weights; ++k) min_dot += b.min[k / sub_block] * a.q[k];
    scaled = std::fma(-static_cast<float>(min_dot), b.dmin, scaled);
  }
  return std::fma(scaled, a.d, sum);
}

template <typename Format, int count>
float add_block(const SmallBlock<count>& b, const ColumnA32& column, std::size_t i, float sum) {
  for (std::size_t g = 0; g < b.groups; ++g) {
    const std::size_t group = i * b.groups + g, at = group % 8;
    const BlockA32& a = column.blocks[group / 8 * column.stride];
    int dot = 0;
    for (std::size_t k = 0; k < 32; ++k) dot += b.q[g * 32 + k] * a.q[at * 32 + k];
    sum = std::fma(static_cast<float>(dot), b.d * a.d[at], sum);
    if constexpr (Format::has_min) sum = std::fma(b.m, a.d_sums[at], sum);
  }
  return sum;
}

template <typename Format, int count>
float add_block(const FineBlock<count>& b, const ColumnA32& column, std::size_t i, float sum) {
  for (std::size_t s = 0; s < b.sub_blocks; ++s) {
    const std::size_t sub_block = i * b.sub_blocks + s, at = sub_block % 16;
    const BlockA32& a = column.blocks[sub_block / 16 * column.stride];
    int dot = 0;
    for (std::size_t k = 0; k < 16; ++k) dot += b.q[s * 16 + k] * a.q[at * 16 + k];
    sum = std::fma(static_cast<float>(dot), b.d[s] * a.d[at / 2], sum);
  }
  return sum;
}

// Multiplies one block of weights after another with all columns. `form` returns a column of
// activations in the form that the weights need.
template <typename Format, typename Form>
void multiply_blocks(const WeightRows& w, const Activations& x, Form form, float* y,
                     std::size_t y_stride) {
  using Block = typename Format::Block;
  const std::size_t blocks = w.row_bytes / sizeof(Block);
  for (std::size_t row = 0; row < w.rows; ++row) {
    const std::byte* row_data = w.data + row * w.row_bytes;
    for (std::size_t c = 0; c < x.columns(); ++c) y[c * y_stride + row] = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      const auto b = Format::unpack(load<Block>(row_data + i * sizeof(Block)));
      for (std::size_t c = 0; c < x.columns(); ++c) {
        float& sum = y[c * y_stride + row];
        sum = add_block<Format>(b, form(c), i, sum);
      }
    }
  }
}

void multiply_f32(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride) {
  std::array<float, block> weights;
  for (std::size_t row = 0; row < w.rows; ++row) {
    const std::byte* row_data = w.data + row * w.row_bytes;
    for (std::size_t c = 0; c < x.columns(); ++c) y[c * y_stride + row] = 0;
    for (std::size_t start = 0; start < w.columns; start += block) {
      const std::size_t count = std::min(block, w.columns - start);
      dequantise(w.type, row_data + row_bytes(w.type, start), count, weights.data());
      for (std::size_t c = 0; c < x.columns(); ++c) {
        std::array<float, 4> sum{};
        for (std::size_t k = 0; k < count; ++k) {
          sum[k % 4] = std::fma(weights[k], x.f32(c)[start + k], sum[k % 4]);
        }
        y[c * y_stride + row] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
      }
    }
  }
}

void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch&, const CorePolicy&) {
  const auto a256 = [&x](std::size_t c) { return x.a256(c); };
  const auto a32 = [&x](std::size_t c) { return x.a32(c); };
  visit_format(w.type, [&]<typename Format>(Format) {
    constexpr ActivationForm form = form_of<Format>();
    if constexpr (form == ActivationForm::a256) multiply_blocks<Format>(w, x, a256, y, y_stride);
    if constexpr (form == ActivationForm::a32) multiply_blocks<Format>(w, x, a32, y, y_stride);
    if constexpr (form == ActivationForm::f32) multiply_f32(w, x, y, y_stride);
  });
}

}  // namespace

void fill_matmul_scalar(MatmulKernels& table) {
  table = {multiply, false};
}

}  // namespace sluice::kernels
