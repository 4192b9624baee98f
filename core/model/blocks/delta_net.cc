#include "core/model/blocks/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <span>

#include "kernels/convolution.h"
#include "kernels/recurrence.h"

namespace sluice::model {

DeltaNetSpec read_delta_net(const Keys& keys, std::size_t embedding, float norm_epsilon) {
  const std::uint32_t inner = keys.count("ssm.inner_size");
  DeltaNetSpec spec{.embedding = embedding,
                    .taps = keys.count("ssm.conv_kernel", kernels::convolution_taps_max),
                    .key_heads = keys.count("ssm.group_count"),
                    .value_heads = keys.count("ssm.time_step_rank"),
                    .key_dim = keys.count("ssm.state_size"),
                    .norm_epsilon = norm_epsilon};
  if (inner % spec.value_heads != 0) {
    throw keys.error("ssm.time_step_rank", fmt::format("is {}, which does not divide the {} of "
                                                       "ssm.inner_size",
                                                       spec.value_heads, inner));
  }
  spec.value_dim = inner / spec.value_heads;
  return spec;
}

// Newer files have a list. In others a layer is a delta net if it has no heads, or if the interval
// of full attention does not fall on it.
std::vector<bool> read_delta_net_layers(const Keys& keys, std::span<const Heads> heads) {
  if (keys.contains("attention.recurrent_layers")) {
    std::vector<bool> out;
    for (const std::uint32_t flag : keys.per_layer("attention.recurrent_layers", heads.size())) {
      out.push_back(flag != 0);
    }
    return out;
  }
  const std::uint32_t interval = keys.count_or("full_attention_interval", 4);
  std::vector<bool> out;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    out.push_back(heads[i].query == 0 || (i + 1) % interval != 0);
  }
  return out;
}

DeltaNet::DeltaNet(Decoder& decoder, const LayerTensors& tensors, const DeltaNetSpec& spec)
    : spec_(spec) {
  const std::size_t e = spec_.embedding, n = spec_.value_heads;
  declare_projections(tensors);
  dt_ = tensors.vector(tensors.has("ssm_dt") ? "ssm_dt" : "ssm_dt.bias", {n});
  a_ = tensors.vector("ssm_a", {n});
  convolution_ = {.channels = mixed_size(),
                  .tap_count = spec_.taps,
                  .has_silu = true,
                  .taps = tensors.vector("ssm_conv1d.weight", {spec_.taps, mixed_size()})};
  norm_ = tensors.vector("ssm_norm.weight", {spec_.value_dim});
  output_ = tensors.matrix("ssm_out.weight", value_size(), e);
  const std::size_t matrices = n * kernels::state_floats(spec_.key_dim, spec_.value_dim);
  cache_layer_ = decoder.add_cache_layer({.state_floats = convolution_.tail_floats() + matrices});
}

void DeltaNet::declare_projections(const LayerTensors& tensors) {
  const std::size_t e = spec_.embedding, n = spec_.value_heads;
  if (spec_.groups_value_heads && n % spec_.key_heads != 0) {
    throw tensors.error("ssm_a", fmt::format("belongs to {} value heads, which {} key heads do not "
                                             "divide",
                                             n, spec_.key_heads));
  }
  if (spec_.groups_value_heads && tensors.has("ssm_in.weight")) {
    joint_ = tensors.matrix("ssm_in.weight", e, mixed_size() + value_size());
  } else {
    mixed_ = tensors.matrix("attn_qkv.weight", e, mixed_size());
    gate_ = tensors.matrix("attn_gate.weight", e, value_size());
  }
  if (spec_.groups_value_heads && tensors.has("ssm_ba.weight")) {
    betas_and_alphas_ = tensors.matrix("ssm_ba.weight", e, 2 * n);
  } else {
    alpha_ = tensors.matrix("ssm_alpha.weight", e, n);
    beta_ = tensors.matrix("ssm_beta.weight", e, n);
  }
}

DeltaNet::Buffers DeltaNet::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.mixed = arena.floats(shape.columns * mixed_size());
  out.gates = arena.floats(shape.columns * value_size());
  out.decays = arena.floats(shape.columns * spec_.value_heads);
  out.rates = arena.floats(shape.columns * spec_.value_heads);
  if (joint_.rows != 0) out.joint = arena.floats(shape.columns * joint_.rows);
  const std::size_t both = betas_and_alphas_.rows;
  if (both != 0) out.betas_and_alphas = arena.floats(shape.columns * both);
  return out;
}

void DeltaNet::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = spec_.embedding, n = spec_.value_heads, columns = pass.columns.size();
  const Buffers& b = buffers_;
  std::array<Product, 4> products;
  std::size_t count = 0;
  if (joint_.rows != 0) {
    products[count++] = {&joint_, b.joint, joint_.rows};
  } else {
    products[count++] = {&mixed_, b.mixed, mixed_size()};
    products[count++] = {&gate_, b.gates, value_size()};
  }
  if (betas_and_alphas_.rows != 0) {
    products[count++] = {&betas_and_alphas_, b.betas_and_alphas, 2 * n};
  } else {
    products[count++] = {&alpha_, b.decays, n, dt_};
    products[count++] = {&beta_, b.rates, n};
  }
  pass.compute.multiply(in, e, e, columns, std::span(products).first(count));
  if (joint_.rows != 0 || betas_and_alphas_.rows != 0) {
    for_each_column(pass, [&](std::size_t c) { separate(pass, c); });
  }
  keep_columns(pass, fed_parts(), fed_);
  mix(pass);
  pass.compute.multiply(b.gates, value_size(), value_size(), columns,
                        std::array{Product{&output_, out, e}});
}

void DeltaNet::replay(Pass& pass, std::size_t first) {
  restore_columns(pass, fed_parts(), fed_ + first * fed_floats());
  mix(pass);
}

std::array<FedPart, 3> DeltaNet::fed_parts() const {
  const std::size_t n = spec_.value_heads;
  return {FedPart{buffers_.mixed, mixed_size(), mixed_size()}, FedPart{buffers_.decays, n, n},
          FedPart{buffers_.rates, n, n}};
}

// Everything between the projections: reads and writes the state.
void DeltaNet::mix(Pass& pass) const {
  convolution_.run(pass, cache_layer_, buffers_.mixed, mixed_size());
  for_each_column(pass, [&](std::size_t c) { prepare_column(pass, c); });
  for_each_part(pass, cache_layer_, spec_.value_heads,
                [&](const Stretch& stretch, const LayerState& state, std::size_t head) {
                  run_head(pass, stretch, state, head);
                });
}

// Puts what has been computed together where it would be if it had not.
void DeltaNet::separate(Pass& pass, std::size_t c) const {
  const std::size_t n = spec_.value_heads, shared = n / spec_.key_heads;
  const auto take = [](const float*& from, std::size_t size, float* to) {
    std::copy_n(from, size, to);
    from += size;
  };
  if (joint_.rows != 0) {
    const float* from = buffers_.joint + c * joint_.rows;
    const std::size_t dim = spec_.key_dim, values = shared * spec_.value_dim;
    float* const mixed = buffers_.mixed + c * mixed_size();
    for (std::size_t h = 0; h < spec_.key_heads; ++h) {
      take(from, dim, mixed + h * dim);
      take(from, dim, mixed + key_size() + h * dim);
      take(from, values, mixed + 2 * key_size() + h * values);
      take(from, values, buffers_.gates + c * value_size() + h * values);
    }
  }
  if (betas_and_alphas_.rows != 0) {
    const float* from = buffers_.betas_and_alphas + c * 2 * n;
    for (std::size_t h = 0; h < spec_.key_heads; ++h) {
      take(from, shared, buffers_.rates + c * n + h * shared);
      take(from, shared, buffers_.decays + c * n + h * shared);
    }
    pass.compute.ops().add(dt_.data(), n, buffers_.decays + c * n);
  }
}

std::size_t DeltaNet::key_head_of(std::size_t value_head) const {
  const std::size_t k = spec_.key_heads;
  return spec_.groups_value_heads ? value_head / (spec_.value_heads / k) : value_head % k;
}

// Normalises queries and keys, and computes decays and rates from alpha and beta.
void DeltaNet::prepare_column(Pass& pass, std::size_t c) const {
  constexpr float epsilon = 1e-6f;  // of the model; files do not have it
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t n = spec_.value_heads, dim = spec_.key_dim;
  const float query_scale = 1 / std::sqrt(static_cast<float>(dim));
  float* query = buffers_.mixed + c * mixed_size();
  float* key = query + key_size();
  for (std::size_t h = 0; h < spec_.key_heads; ++h, query += dim, key += dim) {
    ops.l2_norm(query, epsilon, query_scale, dim, query);
    ops.l2_norm(key, epsilon, 1, dim, key);
  }
  float* decays = buffers_.decays + c * n;
  ops.softplus(decays, n);
  ops.multiply(a_.data(), n, decays);
  ops.exp(decays, n);
  ops.sigmoid(buffers_.rates + c * n, n);
}

// Runs the delta rule of one value head over the tokens of a sequence, then its norm and gate.
void DeltaNet::run_head(const Pass& pass, const Stretch& stretch, const LayerState& state,
                        std::size_t head) const {
  const std::size_t dim = spec_.value_dim, n = spec_.value_heads;
  const std::size_t matrix =
      convolution_.tail_floats() + head * kernels::state_floats(spec_.key_dim, dim);
  float* mixed = buffers_.mixed + stretch.first * mixed_size();
  float* values = mixed + 2 * key_size() + head * dim;
  kernels::RecurrenceArgs args{};
  args.queries = mixed + key_head_of(head) * spec_.key_dim;
  args.keys = args.queries + key_size();
  args.values = args.out = values;
  args.key_stride = args.value_stride = args.out_stride = mixed_size();
  args.decays = buffers_.decays + stretch.first * n + head;
  args.rates = buffers_.rates + stretch.first * n + head;
  args.decay_stride = args.rate_stride = n;
  args.state = state.before + matrix;
  args.next_state = state.after + matrix;
  args.positions = stretch.count;
  args.key_dim = spec_.key_dim;
  args.value_dim = dim;
  pass.compute.kernels().recurrence.delta_rule(args);

  const kernels::VectorOps& ops = pass.compute.ops();
  float* gates = buffers_.gates + stretch.first * value_size() + head * dim;
  for (std::size_t i = 0; i < stretch.count; ++i) {
    float* out = values + i * mixed_size();
    float* gate = gates + i * value_size();
    ops.rms_norm(out, norm_.data(), spec_.norm_epsilon, dim, out);
    if (spec_.has_sigmoid_gate) {
      ops.multiply_by_sigmoid(gate, dim, out);
      std::copy_n(out, dim, gate);
    } else {
      ops.swiglu(gate, out, dim, gate);
    }
  }
}

}  // namespace sluice::model
