#include "core/model/blocks/recurrent_parts.h"

#include <algorithm>

namespace sluice::model {

LayerState state_of(const Pass& pass, const Stretch& stretch, std::size_t cache_layer) {
  const kvcache::Sequence& sequence = *pass.columns[stretch.first].sequence;
  return {pass.cache.state(sequence, cache_layer).data(),
          pass.cache.next_state(sequence, cache_layer).data()};
}

void keep_columns(const Pass& pass, std::span<const FedPart> parts, float* fed) {
  for (const std::size_t column : pass.kept) {
    for (const FedPart& part : parts) {
      fed = std::copy_n(part.rows + column * part.stride, part.floats, fed);
    }
  }
}

void restore_columns(const Pass& pass, std::span<const FedPart> parts, const float* fed) {
  for (std::size_t column = 0; column < pass.columns.size(); ++column) {
    for (const FedPart& part : parts) {
      std::copy_n(fed, part.floats, part.rows + column * part.stride);
      fed += part.floats;
    }
  }
}

// With a dilation d it is d convolutions, of every d-th position each. Those of a step begin with
// the rows r, r + d, ... of the tail, and leave theirs where the next step looks for them.
void CausalConvolution::run(Pass& pass, std::size_t cache_layer, float* x,
                            std::size_t stride) const {
  constexpr std::size_t part_max = 256;  // channels of a work item
  const std::size_t parts = (channels + part_max - 1) / part_max;
  for_each_part(pass, cache_layer, parts * dilation,
                [&](const Stretch& stretch, const LayerState& state, std::size_t part) {
                  const std::size_t first = part / dilation * part_max, r = part % dilation;
                  const std::size_t next_r = (r + dilation - stretch.count % dilation) % dilation;
                  kernels::ConvolutionArgs args{};
                  args.x = x + (stretch.first + r) * stride + first;
                  args.stride = dilation * stride;
                  args.taps = taps.data() + first * tap_count;
                  args.bias = bias.empty() ? nullptr : bias.data() + first;
                  args.tail = state.before + state_offset + r * channels + first;
                  args.next_tail = state.after + state_offset + next_r * channels + first;
                  args.tail_stride = dilation * channels;
                  args.positions = (stretch.count + dilation - 1 - r) / dilation;
                  args.channels = std::min(part_max, channels - first);
                  args.tap_count = tap_count;
                  args.has_silu = has_silu;
                  pass.compute.kernels().convolution.causal(args);
                });
}

// Each thread takes some of the features through all columns.
void step_from_before(Pass& pass, std::size_t cache_layer, const float* x, std::size_t size,
                      float* out) {
  constexpr std::size_t part_max = 256;
  const std::size_t parts = (size + part_max - 1) / part_max;
  for_each_part(pass, cache_layer, parts,
                [&](const Stretch& stretch, const LayerState& state, std::size_t part) {
                  const std::size_t first = part * part_max;
                  const std::size_t count = std::min(part_max, size - first);
                  const float* before = state.before + first;
                  const float* now = x + stretch.first * size + first;
                  float* to = out + stretch.first * size + first;
                  for (std::size_t p = 0; p < stretch.count; ++p, to += size) {
                    for (std::size_t i = 0; i < count; ++i) to[i] = before[i] - now[i];
                    before = now;
                    now += size;
                  }
                  std::copy_n(before, count, state.after + first);
                });
}

void add_part(const kernels::VectorOps& ops, const float* x, const float* step, Vector part,
              float* out) {
  if (out != step) std::copy_n(step, part.size(), out);
  ops.multiply(part.data(), part.size(), out);
  ops.add(x, part.size(), out);
}

}  // namespace sluice::model
