// The operation of convolution.h on the lanes of one tier; included after its lanes_*.h.
//
// Channels are computed in blocks, whose transposed taps and rows stay in the first-level cache for
// all positions. Positions are computed from the last to the first, so that a result can overwrite
// its input, which only later positions need.
#pragma once

#include <cstddef>

#include "kernels/convolution.h"
#include "kernels/lanes_math.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t block_channels = 256;

// Rows of one block of channels.
struct ConvolutionBlock {
  float taps[convolution_taps_max][block_channels];
  float bias[block_channels];
  float next_tail[convolution_taps_max - 1][block_channels];
};

// The inputs of position p, or, when p is negative, of one before the call.
inline const float* input_row(const ConvolutionArgs& args, std::ptrdiff_t p) {
  if (p >= 0) return args.x + static_cast<std::size_t>(p) * args.stride;
  const std::size_t back = static_cast<std::size_t>(-p);
  return args.tail + (args.tap_count - 1 - back) * args.tail_stride;
}

inline void copy_floats(const float* from, std::size_t size, float* to) {
  by_sixteen(
      size, [&](std::size_t i, std::size_t count) { store(load(from + i, count), to + i, count); });
}

inline void read_block(const ConvolutionArgs& args, std::size_t first, std::size_t count,
                       ConvolutionBlock& block) {
  const std::size_t taps = args.tap_count;
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t j = 0; j < taps; ++j) block.taps[j][c] = args.taps[(first + c) * taps + j];
    block.bias[c] = args.bias ? args.bias[first + c] : 0;
  }
  const auto end = static_cast<std::ptrdiff_t>(args.positions);
  const auto rows = static_cast<std::ptrdiff_t>(taps - 1);
  for (std::ptrdiff_t j = 0; j < rows; ++j) {
    copy_floats(input_row(args, end - rows + j) + first, count, block.next_tail[j]);
  }
}

// One position of a block; `rows` are its inputs, the oldest first.
template <bool has_silu>
inline void convolve_row(const ConvolutionBlock& block, const float* const* rows, std::size_t taps,
                         std::size_t size, float* out) {
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    F32x16 sum = load(block.bias + i, count);
    for (std::size_t j = 0; j < taps; ++j) {
      sum = fma(load(block.taps[j] + i, count), load(rows[j] + i, count), sum);
    }
    store(has_silu ? silu(sum) : sum, out + i, count);
  });
}

template <bool has_silu>
inline void convolve(const ConvolutionArgs& args) {
  const auto reach = static_cast<std::ptrdiff_t>(args.tap_count) - 1;
  ConvolutionBlock block;
  for (std::size_t first = 0; first < args.channels; first += block_channels) {
    const std::size_t rest = args.channels - first;
    const std::size_t count = rest < block_channels ? rest : block_channels;
    read_block(args, first, count, block);
    for (auto p = static_cast<std::ptrdiff_t>(args.positions) - 1; p >= 0; --p) {
      const float* rows[convolution_taps_max];
      for (std::ptrdiff_t j = 0; j <= reach; ++j) rows[j] = input_row(args, p - reach + j) + first;
      float* out = args.x + static_cast<std::size_t>(p) * args.stride + first;
      convolve_row<has_silu>(block, rows, args.tap_count, count, out);
    }
    for (std::size_t j = 0; j + 1 < args.tap_count; ++j) {
      copy_floats(block.next_tail[j], count, args.next_tail + j * args.tail_stride + first);
    }
  }
}

inline void causal_convolution(const ConvolutionArgs& args) {
  args.has_silu ? convolve<true>(args) : convolve<false>(args);
}

inline void fill(ConvolutionKernels& table) {
  table.causal = causal_convolution;
}

}  // namespace
}  // namespace sluice::kernels
