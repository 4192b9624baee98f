#include "core/model/blocks/per_layer_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::model {

PerLayerInputs::PerLayerInputs(WeightLayout& layout, const PerLayerInputsSpec& spec)
    : spec_(spec),
      model_(layout.model()),
      table_(layout.table("per_layer_token_embd.weight", all(), spec.vocabulary)),
      projection_(layout.matrix("per_layer_model_proj.weight", spec.embedding, all())),
      norm_(layout.vector("per_layer_proj_norm.weight", {spec.width})) {}

void PerLayerInputs::bind(Arena& arena, const BufferShape& shape) {
  inputs_ = arena.floats(shape.columns * all());
  row_ = arena.floats(all());
  rows_.emplace(model_, table_);
}

void PerLayerInputs::run(Pass& pass, const float* in, float*) {
  const std::size_t e = spec_.embedding, p = spec_.width, columns = pass.columns.size();
  const kernels::VectorOps& ops = pass.compute.ops();
  const float root_e = std::sqrt(static_cast<float>(e));
  pass.compute.multiply(in, e, e, columns, std::array{Product{&projection_, inputs_, all()}});
  pass.compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    ops.scale(inputs_ + begin * all(), (end - begin) * all(), 1 / root_e);
    for (std::size_t at = begin * all(); at < end * all(); at += p) {
      ops.rms_norm(inputs_ + at, norm_.data(), spec_.norm_epsilon, p, inputs_ + at);
    }
  });
  // Row after row on one thread: they are read from the disk, and share a buffer.
  const float root_p = std::sqrt(static_cast<float>(p)), root_half = std::sqrt(0.5f);
  for (std::size_t c = 0; c < columns; ++c) {
    float* inputs = inputs_ + c * all();
    rows_->row(static_cast<std::size_t>(pass.columns[c].token), row_);
    ops.add_scaled(row_, root_p, all(), inputs);
    ops.scale(inputs, all(), root_half);
  }
}

PerLayerInput::PerLayerInput(const LayerTensors& tensors, const PerLayerInputs& inputs,
                             std::size_t layer)
    : inputs_(inputs),
      layer_(layer),
      gate_(tensors.matrix("inp_gate.weight", inputs.spec().embedding, inputs.spec().width)),
      output_(tensors.matrix("proj.weight", inputs.spec().width, inputs.spec().embedding)) {}

void PerLayerInput::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = inputs_.spec().embedding, p = inputs_.spec().width;
  const std::size_t columns = pass.columns.size();
  pass.compute.multiply(in, e, e, columns, std::array{Product{&gate_, gated_, p}});
  pass.compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      float* gated = gated_ + c * p;
      pass.compute.ops().geglu(gated, inputs_.input(c, layer_), p, gated);
    }
  });
  pass.compute.multiply(gated_, p, p, columns, std::array{Product{&output_, out, e}});
}

}  // namespace sluice::model
