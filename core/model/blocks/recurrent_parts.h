// What recurrent blocks share: the state of a layer for each sequence of a step, the short
// convolution, and loops over heads and columns.
#pragma once

#include <cstddef>
#include <span>

#include "core/model/step.h"
#include "core/model/weights.h"

namespace sluice::model {

// The state of one layer of a sequence: `before` is read by the step, `after` is written.
struct LayerState {
  const float* before;
  float* after;
};
LayerState state_of(const Pass& pass, const Stretch& stretch, std::size_t cache_layer);

// A causal convolution of each channel (kernels/convolution.h). Its tail is a part of the layer's
// state.
struct CausalConvolution {
  std::size_t channels = 0;
  std::size_t tap_count = 0;
  std::size_t dilation = 1;  // positions from one tap to the next
  bool has_silu = false;
  std::size_t state_offset = 0;  // where its tail begins in the layer's state, in floats
  Vector taps = {};              // [channels][taps]
  Vector bias = {};              // [channels], or empty

  std::size_t tail_floats() const { return (tap_count - 1) * dilation * channels; }

  // Convolves the columns x[c * stride ...] of `channels` features in place, on all threads.
  void run(Pass& pass, std::size_t cache_layer, float* x, std::size_t stride) const;
};

// Numbers that columns feed into a state: the first `floats` of each row of an array
// [columns][stride].
struct FedPart {
  float* rows;
  std::size_t stride, floats;
};
// Copies these parts of the columns in Pass::kept to `fed`, one column after the other; and back
// from there to the columns of a pass that has only such columns.
void keep_columns(const Pass& pass, std::span<const FedPart> parts, float* fed);
void restore_columns(const Pass& pass, std::span<const FedPart> parts, const float* fed);

// Writes to out[columns][size] what each column of x[columns][size] lacks of the one before it in
// its sequence: x' - x. The state of the layer begins with the last column of x (zeros where the
// sequence begins). `out` is not `x`.
void step_from_before(Pass& pass, std::size_t cache_layer, const float* x, std::size_t size,
                      float* out);

// out[i] = x[i] + step[i] * part[i]; `out` may be `step`.
void add_part(const kernels::VectorOps& ops, const float* x, const float* step, Vector part,
              float* out);

// Calls f(stretch, state, part) for each sequence of the step and each of its `parts` parts (such
// as heads), on all threads.
template <typename F>
void for_each_part(Pass& pass, std::size_t cache_layer, std::size_t parts, F&& f) {
  const std::size_t items = pass.stretches.size() * parts;
  pass.compute.for_each(items, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const Stretch& stretch = pass.stretches[i / parts];
      f(stretch, state_of(pass, stretch, cache_layer), i % parts);
    }
  });
}

// Calls f(column) for each column of the step, on all threads.
template <typename F>
void for_each_column(Pass& pass, F&& f) {
  pass.compute.for_each(pass.columns.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) f(c);
  });
}

}  // namespace sluice::model
