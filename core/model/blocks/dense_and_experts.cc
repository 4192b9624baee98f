#include "core/model/blocks/dense_and_experts.h"

#include <cmath>

#include "core/model/blocks/recurrent_parts.h"

namespace sluice::model {

DenseAndExperts::DenseAndExperts(const LayerTensors& tensors, const DenseAndExpertsSpec& spec)
    : embedding_(spec.dense.embedding),
      norm_epsilon_(spec.norm_epsilon),
      dense_norm_(tensors.vector("ffn_norm.weight", {embedding_})),
      dense_(tensors, spec.dense),
      dense_post_norm_(tensors.vector("post_ffw_norm_1.weight", {embedding_})),
      router_scale_(tensors.vector("ffn_gate_inp.scale", {embedding_})),
      experts_norm_(tensors.vector("pre_ffw_norm_2.weight", {embedding_})),
      experts_(tensors, spec.experts),
      experts_post_norm_(tensors.vector("post_ffw_norm_2.weight", {embedding_})) {}

void DenseAndExperts::measure(Arena& arena, const BufferShape& shape) const {
  arena.floats(shape.columns * embedding_);
  arena.floats(shape.columns * embedding_);
  dense_.measure(arena, shape);
  experts_.measure(arena, shape);
}

void DenseAndExperts::bind(Arena& arena, const BufferShape& shape) {
  dense_out_ = arena.floats(shape.columns * embedding_);
  experts_in_ = arena.floats(shape.columns * embedding_);
  dense_.bind(arena, shape);
  experts_.bind(arena, shape);
}

// The input of the router is built in `out`, once `in` is no longer needed.
void DenseAndExperts::run(Pass& pass, const float* in, float* out) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = embedding_;
  const auto normalise = [&](const float* x, Vector weight, std::size_t c, float* y) {
    ops.rms_norm(x + c * e, weight.data(), norm_epsilon_, e, y + c * e);
  };
  for_each_column(pass, [&](std::size_t c) {
    normalise(in, dense_norm_, c, dense_out_);
    normalise(in, experts_norm_, c, experts_in_);
    normalise(in, router_scale_, c, out);
    ops.scale(out + c * e, e, 1 / std::sqrt(static_cast<float>(e)));
  });
  dense_.run(pass, dense_out_, dense_out_);
  experts_.run(pass, out, experts_in_, out);
  for_each_column(pass, [&](std::size_t c) {
    normalise(dense_out_, dense_post_norm_, c, dense_out_);
    normalise(out, experts_post_norm_, c, out);
    ops.add(dense_out_ + c * e, e, out + c * e);
  });
}

}  // namespace sluice::model
