#include "core/model/blocks/kimi_delta.h"

#include <cmath>
#include <span>
#include <string>

#include "kernels/convolution.h"
#include "kernels/recurrence.h"

namespace sluice::model {

KimiDeltaSpec read_kimi_delta(const Keys& keys, std::size_t embedding, float norm_epsilon) {
  KimiDeltaSpec spec{.embedding = embedding,
                     .heads = keys.count("attention.head_count"),
                     .dim = keys.count("kda.head_dim"),
                     .taps = keys.count("ssm.conv_kernel", kernels::convolution_taps_max),
                     .norm_epsilon = norm_epsilon,
                     .decay_bound = keys.number_or("kda.gate_lower_bound", 0)};
  if (spec.decay_bound > 0) throw keys.error("kda.gate_lower_bound", "is above 0");
  if (!keys.flag_or("kda.safe_gate", true)) {
    throw keys.error("kda.safe_gate", "is false; only bounded decays are supported");
  }
  return spec;
}

KimiDelta::KimiDelta(Decoder& decoder, const LayerTensors& tensors, const KimiDeltaSpec& spec)
    : spec_(spec) {
  const std::size_t e = spec_.embedding, h = spec_.heads;
  constexpr std::array letters = {"q", "k", "v"};
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const std::string letter = letters[i];
    projections_[i] = tensors.matrix("attn_" + letter + ".weight", e, size());
    convolutions_[i] = {
        .channels = size(),
        .tap_count = spec_.taps,
        .has_silu = true,
        .state_offset = i * (spec_.taps - 1) * size(),
        .taps = tensors.vector("ssm_conv1d_" + letter + ".weight", {spec_.taps, 1, size()})};
  }
  beta_ = tensors.matrix("ssm_beta.weight", e, h);
  declare_gates(tensors);
  dt_ = tensors.vector("ssm_dt.bias", {size()});
  a_ = tensors.vector("ssm_a", {1, h});
  norm_ = tensors.vector("ssm_norm.weight", {spec_.dim});
  output_ = tensors.matrix("attn_output.weight", size(), e);
  cache_layer_ = decoder.add_cache_layer(
      {.state_floats = tails() + h * kernels::state_floats(spec_.dim, spec_.dim)});
}

// The narrow halves of both gates are read before the others.
void KimiDelta::declare_gates(const LayerTensors& tensors) {
  constexpr std::array<const char*, 2> stems = {"ssm_f", "ssm_g"};
  const auto name = [&](std::size_t i, const char* end) { return std::string(stems[i]) + end; };
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    const bool is_narrow = tensors.has(name(i, "_b.weight"));
    const bool is_short = tensors.has(name(i, ".weight"));  // of one matrix, by another name
    gates_[i].first = tensors.matrix(name(i, is_short ? ".weight" : "_a.weight"), spec_.embedding,
                                     is_narrow ? spec_.dim : size());
  }
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    if (!tensors.has(name(i, "_b.weight"))) continue;
    gates_[i].second = tensors.matrix(name(i, "_b.weight"), spec_.dim, size());
  }
}

KimiDelta::Buffers KimiDelta::place(Arena& arena, const BufferShape& shape) const {
  const auto floats = [&](std::size_t each) { return arena.floats(shape.columns * each); };
  Buffers out;
  out.mixed = floats(3 * size());
  out.decays = floats(size());
  out.gates = floats(size());
  out.rates = floats(spec_.heads);
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    if (gates_[i].is_narrow()) out.narrow[i] = floats(spec_.dim);
  }
  return out;
}

void KimiDelta::run(Pass& pass, const float* in, float* out) {
  project(pass, in);
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    convolutions_[i].run(pass, cache_layer_, buffers_.mixed + i * size(), 3 * size());
  }
  for_each_column(pass, [&](std::size_t c) { prepare_column(pass, c); });
  for_each_part(pass, cache_layer_, spec_.heads,
                [&](const Stretch& stretch, const LayerState& state, std::size_t head) {
                  run_head(pass, stretch, state, head);
                });
  pass.compute.multiply(buffers_.gates, size(), size(), pass.columns.size(),
                        std::array{Product{&output_, out, spec_.embedding}});
}

void KimiDelta::project(Pass& pass, const float* in) {
  const std::size_t e = spec_.embedding, columns = pass.columns.size();
  const std::array wide = {buffers_.decays, buffers_.gates};
  std::array<Product, 6> products;
  std::size_t count = 0;
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    products[count++] = {&projections_[i], buffers_.mixed + i * size(), 3 * size()};
  }
  products[count++] = {&beta_, buffers_.rates, spec_.heads};
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    const Gate& gate = gates_[i];
    products[count++] = {&gate.first, gate.is_narrow() ? buffers_.narrow[i] : wide[i],
                         gate.first.rows};
  }
  pass.compute.multiply(in, e, e, columns, products);
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    if (!gates_[i].is_narrow()) continue;
    pass.compute.multiply(buffers_.narrow[i], spec_.dim, spec_.dim, columns,
                          std::array{Product{&gates_[i].second, wide[i], size()}});
  }
}

// Normalises queries and keys, and computes decays and rates.
void KimiDelta::prepare_column(Pass& pass, std::size_t c) const {
  constexpr float epsilon = 1e-6f;
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t dim = spec_.dim;
  const float query_scale = 1 / std::sqrt(static_cast<float>(dim));
  float* query = buffers_.mixed + c * 3 * size();
  float* key = query + size();
  float* decays = buffers_.decays + c * size();
  ops.add(dt_.data(), size(), decays);
  if (spec_.decay_bound == 0) ops.softplus(decays, size());
  for (std::size_t h = 0; h < spec_.heads; ++h, query += dim, key += dim) {
    ops.l2_norm(query, epsilon, query_scale, dim, query);
    ops.l2_norm(key, epsilon, 1, dim, key);
    ops.scale(decays + h * dim, dim, a_[h]);
  }
  if (spec_.decay_bound != 0) {
    ops.sigmoid(decays, size());
    ops.scale(decays, size(), spec_.decay_bound);
  }
  ops.exp(decays, size());
  ops.sigmoid(buffers_.rates + c * spec_.heads, spec_.heads);
}

// Runs the delta rule of one head over the tokens of a sequence, then its norm and gate.
void KimiDelta::run_head(const Pass& pass, const Stretch& stretch, const LayerState& state,
                         std::size_t head) const {
  const std::size_t dim = spec_.dim, matrix = tails() + head * kernels::state_floats(dim, dim);
  float* mixed = buffers_.mixed + stretch.first * 3 * size() + head * dim;
  kernels::RecurrenceArgs args{};
  args.queries = mixed;
  args.keys = mixed + size();
  args.values = args.out = mixed + 2 * size();
  args.key_stride = args.value_stride = args.out_stride = 3 * size();
  args.key_decays = buffers_.decays + stretch.first * size() + head * dim;
  args.decay_stride = size();
  args.rates = buffers_.rates + stretch.first * spec_.heads + head;
  args.rate_stride = spec_.heads;
  args.state = state.before + matrix;
  args.next_state = state.after + matrix;
  args.positions = stretch.count;
  args.key_dim = args.value_dim = dim;
  pass.compute.kernels().recurrence.delta_rule(args);

  const kernels::VectorOps& ops = pass.compute.ops();
  for (std::size_t i = 0; i < stretch.count; ++i) {
    float* out = args.out + i * args.out_stride;
    float* gate = buffers_.gates + (stretch.first + i) * size() + head * dim;
    ops.rms_norm(out, norm_.data(), spec_.norm_epsilon, dim, out);
    ops.sigmoid(gate, dim);
    ops.multiply(out, dim, gate);
  }
}

}  // namespace sluice::model
