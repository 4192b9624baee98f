#include "core/model/blocks/rwkv7.h"

#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <string>

#include "core/model/blocks/recurrent_parts.h"
#include "kernels/recurrence.h"

namespace sluice::model {
namespace {

// The places of the six mixtures in time_mix_lerp_fused.
enum Mixture : std::size_t { of_query, of_decay, of_key, of_value, of_rate, of_gate, mixtures };

}  // namespace

Rwkv7Spec read_rwkv7(const Keys& keys, std::size_t embedding) {
  const Rwkv7Spec spec{.embedding = embedding,
                       .head = keys.count("wkv.head_size"),
                       .feed_forward = keys.count("feed_forward_length"),
                       .decay_rank = keys.count("attention.decay_lora_rank"),
                       .rate_rank = keys.count("attention.iclr_lora_rank"),
                       .value_rank = keys.count("attention.value_residual_mix_lora_rank"),
                       .gate_rank = keys.count("attention.gate_lora_rank")};
  if (embedding % spec.head != 0) {
    throw keys.error(
        "wkv.head_size",
        fmt::format("is {}, which does not divide the embedding length {}", spec.head, embedding));
  }
  return spec;
}

TimeMixing::TimeMixing(Decoder& decoder, const LayerTensors& tensors, const Rwkv7Spec& spec,
                       const FirstValues& first_values, bool is_first)
    : spec_(spec), first_values_(first_values), is_first_(is_first) {
  const std::size_t e = spec_.embedding;
  const auto vector = [&](const char* name) {
    return tensors.vector(std::string("time_mix_") + name, {e});
  };
  const auto square = [&](const char* name) {
    return tensors.matrix(std::string("time_mix_") + name, e, e);
  };
  lerps_ = tensors.vector("time_mix_lerp_fused.weight", {e, 1, 1, mixtures});
  receptance_ = square("receptance.weight");
  decay_ = declare_narrow(tensors, "w", spec_.decay_rank);
  key_ = square("key.weight");
  value_ = square("value.weight");
  if (is_first_) {  // some files have them here too, of another rank
    for (const char* name : {"v0", "v1", "v2"}) {
      tensors.leave_aside(fmt::format("time_mix_{}.weight", name));
    }
  } else {
    value_gate_ = declare_narrow(tensors, "v", spec_.value_rank);
  }
  rate_ = declare_narrow(tensors, "a", spec_.rate_rank);
  gate_ = declare_narrow(tensors, "g", spec_.gate_rank);
  k_k_ = vector("k_k.weight");
  k_a_ = vector("k_a.weight");
  r_k_ = vector("r_k.weight");
  norm_ = vector("ln.weight");
  norm_bias_ = vector("ln.bias");
  output_ = square("output.weight");
  const std::size_t matrices = heads() * kernels::state_floats(spec_.head, spec_.head);
  cache_layer_ = decoder.add_cache_layer({.state_floats = e + matrices});
}

// All but the gate have a bias.
TimeMixing::Narrow TimeMixing::declare_narrow(const LayerTensors& tensors, const char* letter,
                                              std::size_t rank) const {
  const auto name = [&](int n) { return fmt::format("time_mix_{}{}.weight", letter, n); };
  const bool has_bias = *letter != 'g';
  Narrow out;
  out.first = tensors.matrix(name(1), spec_.embedding, rank);
  out.second = tensors.matrix(name(2), rank, spec_.embedding);
  if (has_bias) out.bias = tensors.vector(name(0), {spec_.embedding});
  return out;
}

TimeMixing::Buffers TimeMixing::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  for (float** each : {&out.step, &out.mixed, &out.queries, &out.keys, &out.values, &out.decays,
                       &out.rates, &out.removed, &out.gates, &out.value_gates}) {
    *each = arena.floats(shape.columns * spec_.embedding);
  }
  const std::size_t rank =
      std::max({decay_.rank(), rate_.rank(), value_gate_.rank(), gate_.rank()});
  out.narrow = arena.floats(shape.columns * rank);
  return out;
}

void TimeMixing::run(Pass& pass, const float* in, float* out) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = spec_.embedding;
  step_from_before(pass, cache_layer_, in, e, buffers_.step);
  project(pass, in);
  for_each_column(pass, [&](std::size_t c) { prepare_column(ops, c); });
  for_each_part(pass, cache_layer_, heads(),
                [&](const Stretch& stretch, const LayerState& state, std::size_t head) {
                  const std::size_t s = spec_.head, at = stretch.first * e + head * s;
                  const std::size_t matrix = e + head * kernels::state_floats(s, s);
                  kernels::RecurrenceArgs args{};
                  args.queries = buffers_.queries + at;
                  args.keys = buffers_.keys + at;
                  args.values = buffers_.values + at;
                  args.key_decays = buffers_.decays + at;
                  args.removed_keys = buffers_.removed + at;
                  args.removal_rates = buffers_.rates + at;
                  args.out = buffers_.mixed + at;
                  args.key_stride = args.value_stride = args.decay_stride = args.out_stride = e;
                  args.state = state.before + matrix;
                  args.next_state = state.after + matrix;
                  args.positions = stretch.count;
                  args.key_dim = args.value_dim = s;
                  pass.compute.kernels().recurrence.removal_rule(args);
                });
  for_each_column(pass, [&](std::size_t c) { finish_column(ops, c); });
  multiply(pass, buffers_.mixed, output_, out);
}

// x_j of all columns.
const float* TimeMixing::mix(Pass& pass, const float* in, std::size_t j) const {
  const std::size_t e = spec_.embedding;
  const Vector lerp = lerps_.subspan(j * e, e);
  for_each_column(pass, [&](std::size_t c) {
    add_part(pass.compute.ops(), in + c * e, buffers_.step + c * e, lerp, buffers_.mixed + c * e);
  });
  return buffers_.mixed;
}

void TimeMixing::multiply(Pass& pass, const float* x, const Matrix& w, float* y) const {
  const std::size_t e = spec_.embedding;
  pass.compute.multiply(x, e, e, pass.columns.size(), std::array{Product{&w, y, e}});
}

template <typename F>
void TimeMixing::multiply(Pass& pass, const float* x, const Narrow& w, F&& f, float* y) const {
  const std::size_t e = spec_.embedding, rank = w.rank(), columns = pass.columns.size();
  float* const narrow = buffers_.narrow;
  pass.compute.multiply(x, e, e, columns, std::array{Product{&w.first, narrow, rank}});
  for_each_column(pass, [&](std::size_t c) { f(narrow + c * rank, rank); });
  pass.compute.multiply(narrow, rank, rank, columns, std::array{Product{&w.second, y, e, w.bias}});
}

// The products with what columns bring, in the order of the tape.
void TimeMixing::project(Pass& pass, const float* in) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const auto as_it_is = [](float*, std::size_t) {};
  multiply(pass, mix(pass, in, of_query), receptance_, buffers_.queries);
  multiply(
      pass, mix(pass, in, of_decay), decay_,
      [&](float* row, std::size_t rank) { ops.softcap(row, rank, 1); },  // tanh
      buffers_.decays);
  multiply(pass, mix(pass, in, of_key), key_, buffers_.keys);
  const float* const mixed = mix(pass, in, of_value);
  multiply(pass, mixed, value_, buffers_.values);
  if (!is_first_) multiply(pass, mixed, value_gate_, as_it_is, buffers_.value_gates);
  multiply(pass, mix(pass, in, of_rate), rate_, as_it_is, buffers_.rates);
  multiply(pass, mix(pass, in, of_gate), gate_, ops.sigmoid, buffers_.gates);
}

void TimeMixing::prepare_column(const kernels::VectorOps& ops, std::size_t c) const {
  const std::size_t e = spec_.embedding, at = c * e;
  float* const key = buffers_.keys + at;
  float* const removed = buffers_.removed + at;
  float* const rates = buffers_.rates + at;
  float* const decays = buffers_.decays + at;
  ops.sigmoid(decays, e);
  ops.scale(decays, e, -std::exp(-0.5f));
  ops.exp(decays, e);
  blend_first_values(ops, c);
  ops.sigmoid(rates, e);
  std::memcpy(removed, key, e * sizeof(float));
  ops.multiply(k_k_.data(), e, removed);
  constexpr float epsilon = 1e-24f;
  for (std::size_t h = 0; h < e; h += spec_.head) {
    ops.l2_norm(removed + h, epsilon, 1, spec_.head, removed + h);
  }
  for (std::size_t i = 0; i < e; ++i) key[i] *= 1 + (rates[i] - 1) * k_a_[i];
}

void TimeMixing::blend_first_values(const kernels::VectorOps& ops, std::size_t c) const {
  const std::size_t e = spec_.embedding;
  float* const values = buffers_.values + c * e;
  float* const first = first_values_.column(c);
  if (is_first_) {
    std::memcpy(first, values, e * sizeof(float));
    return;
  }
  float* const gates = buffers_.value_gates + c * e;
  ops.sigmoid(gates, e);
  for (std::size_t i = 0; i < e; ++i) values[i] += (first[i] - values[i]) * gates[i];
}

void TimeMixing::finish_column(const kernels::VectorOps& ops, std::size_t c) const {
  constexpr float epsilon = 64e-5f;  // in all models
  const std::size_t e = spec_.embedding, s = spec_.head, at = c * e;
  float* const out = buffers_.mixed + at;
  const float* const queries = buffers_.queries + at;
  const float* const keys = buffers_.keys + at;
  for (std::size_t h = 0; h < e; h += s) {
    ops.layer_norm(out + h, norm_.data() + h, norm_bias_.data() + h, epsilon, s, out + h);
    float sum = 0;
    for (std::size_t i = h; i < h + s; ++i) sum += keys[i] * queries[i] * r_k_[i];
    ops.add_scaled(buffers_.values + at + h, sum, s, out + h);
  }
  ops.multiply(buffers_.gates + at, e, out);
}

ChannelMixing::ChannelMixing(Decoder& decoder, const LayerTensors& tensors, const Rwkv7Spec& spec)
    : embedding_(spec.embedding),
      cache_layer_(decoder.add_cache_layer({.state_floats = spec.embedding})),
      lerp_(tensors.vector("channel_mix_lerp_k.weight", {embedding_, 1, 1})) {
  FeedForwardWeights weights;
  weights.up = tensors.matrix("channel_mix_key.weight", embedding_, spec.feed_forward);
  weights.down = tensors.matrix("channel_mix_value.weight", spec.feed_forward, embedding_);
  network_.emplace(std::move(weights), FeedForwardSpec{.embedding = embedding_,
                                                       .width = spec.feed_forward,
                                                       .activation = Activation::relu_squared});
}

void ChannelMixing::measure(Arena& arena, const BufferShape& shape) const {
  arena.floats(shape.columns * embedding_);
  network_->measure(arena, shape);
}

void ChannelMixing::bind(Arena& arena, const BufferShape& shape) {
  mixed_ = arena.floats(shape.columns * embedding_);
  network_->bind(arena, shape);
}

void ChannelMixing::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = embedding_;
  step_from_before(pass, cache_layer_, in, e, mixed_);
  for_each_column(pass, [&](std::size_t c) {
    add_part(pass.compute.ops(), in + c * e, mixed_ + c * e, lerp_, mixed_ + c * e);
  });
  network_->run(pass, mixed_, out);
}

}  // namespace sluice::model
