#include "core/model/blocks/feed_forward.h"

#include <array>
#include <cmath>
#include <string>

namespace sluice::model {

FeedForward::FeedForward(const LayerTensors& tensors, const FeedForwardSpec& spec) : spec_(spec) {
  const std::size_t e = spec_.embedding, f = spec_.width;
  const std::string suffix = spec_.is_shared_expert ? "_shexp" : "";
  const std::string gate = "ffn_gate" + suffix, up = "ffn_up" + suffix, down = "ffn_down" + suffix;
  FeedForwardWeights& w = weights_;
  const std::string token_gate = "ffn_gate_inp_shexp.weight";
  if (spec_.is_shared_expert && tensors.has(token_gate)) {
    token_gate_ = tensors.matrix(token_gate, e, 1);
  }
  if (spec_.has_gate() && tensors.rows(up + ".weight") == 2 * f) {
    w.gate = tensors.part_of_matrix(up + ".weight", {e, 2 * f}, 0, f);
    w.up = tensors.part_of_matrix(up + ".weight", {e, 2 * f}, f, f);
    const Vector bias = tensors.optional_vector(up + ".bias", {2 * f});
    if (!bias.empty()) {
      w.gate_bias = bias.first(f);
      w.up_bias = bias.last(f);
    }
  } else {
    if (spec_.has_gate()) {
      w.gate = tensors.matrix(gate + ".weight", e, f);
      w.gate_bias = tensors.optional_vector(gate + ".bias", {f});
    }
    w.up = tensors.matrix(up + ".weight", e, f);
    w.up_bias = tensors.optional_vector(up + ".bias", {f});
  }
  w.down = tensors.matrix(down + ".weight", f, e);
  w.down_bias = tensors.optional_vector(down + ".bias", {e});
}

FeedForward::Buffers FeedForward::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  if (spec_.has_gate()) out.gate = arena.floats(shape.columns * spec_.width);
  out.up = arena.floats(shape.columns * spec_.width);
  if (has_token_gate()) out.token_gates = arena.floats(shape.columns);
  return out;
}

void FeedForward::run(Compute& compute, const float* in, std::size_t columns, float* out) {
  const std::size_t e = spec_.embedding, f = spec_.width;
  std::array<Product, 3> products{};
  std::size_t count = 0;
  if (has_token_gate()) products[count++] = {&token_gate_, buffers_.token_gates, 1};
  if (spec_.has_gate()) products[count++] = {&weights_.gate, buffers_.gate, f, weights_.gate_bias};
  products[count++] = {&weights_.up, buffers_.up, f, weights_.up_bias};
  compute.multiply(in, e, e, columns, std::span(products).first(count));
  activate(compute, columns);
  compute.multiply(buffers_.up, f, f, columns,
                   std::array{Product{&weights_.down, out, e, weights_.down_bias}});
  if (has_token_gate()) apply_token_gates(compute, columns, out);
}

void FeedForward::run_together(Compute& compute, const float* in, std::span<const Output> outputs,
                               std::vector<Product>& products) {
  if (outputs.empty()) return;
  const FeedForward& first = *outputs.front().network;
  const std::size_t e = first.spec_.embedding, f = first.spec_.width;
  products.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const FeedForwardWeights& w = outputs[i].network->weights_;
    if (first.spec_.has_gate()) {
      products.push_back({&w.gate, first.buffers_.gate + i * f, f, w.gate_bias});
    }
    products.push_back({&w.up, first.buffers_.up + i * f, f, w.up_bias});
  }
  compute.multiply(in, e, e, 1, products);
  first.activate(compute, outputs.size());
  products.clear();
  for (const auto& [network, out] : outputs) {
    products.push_back({&network->weights_.down, out, e, network->weights_.down_bias});
  }
  compute.multiply_each(first.buffers_.up, f, f, f, 1, products);
}

void FeedForward::activate(Compute& compute, std::size_t columns) const {
  constexpr float slope = 1.702f, limit = 7;  // of gpt-oss
  const kernels::VectorOps& ops = compute.ops();
  compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    const std::size_t at = begin * spec_.width, count = (end - begin) * spec_.width;
    float* up = buffers_.up + at;
    switch (spec_.activation) {
      case Activation::swiglu:
        if (const float most = spec_.numbers.limit; most != 0) {
          return ops.limited_swiglu(buffers_.gate + at, up, most, count, up);
        }
        return ops.swiglu(buffers_.gate + at, up, count, up);
      case Activation::geglu:
        for (std::size_t c = begin; c < end && spec_.numbers.cut; ++c) {
          cut_gate(buffers_.gate + c * spec_.width);
        }
        return ops.geglu(buffers_.gate + at, up, count, up);
      case Activation::clamped_swiglu:
        return ops.clamped_swiglu(buffers_.gate + at, up, slope, limit, count, up);
      case Activation::reglu:
        return ops.reglu(buffers_.gate + at, up, count, up);
      case Activation::relu_squared:
        return ops.relu_squared(up, count);
      case Activation::gelu:
        return ops.gelu(up, count);
      case Activation::xielu:
        return ops.xielu(up, count, spec_.numbers.xielu);
    }
  });
}

// Sparse activations of one column.
void FeedForward::cut_gate(float* gate) const {
  const std::size_t f = spec_.width;
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < f; ++i) sum += static_cast<double>(gate[i]);
  const double mean = sum / static_cast<double>(f);
  for (std::size_t i = 0; i < f; ++i) squares += (gate[i] - mean) * (gate[i] - mean);
  const double variance = squares / static_cast<double>(std::max<std::size_t>(f, 2) - 1);
  const auto least = static_cast<float>(mean + *spec_.numbers.cut * std::sqrt(variance));
  for (std::size_t i = 0; i < f; ++i) gate[i] = std::max(gate[i] - least, 0.0f);
}

void FeedForward::apply_token_gates(Compute& compute, std::size_t columns, float* out) const {
  const kernels::VectorOps& ops = compute.ops();
  compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    ops.sigmoid(buffers_.token_gates + begin, end - begin);
    for (std::size_t c = begin; c < end; ++c) {
      ops.scale(out + c * spec_.embedding, spec_.embedding, buffers_.token_gates[c]);
    }
  });
}

}  // namespace sluice::model
