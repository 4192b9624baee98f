#include "core/model/blocks/mamba2.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "kernels/convolution.h"
#include "kernels/recurrence.h"

namespace sluice::model {

Mamba2Spec read_mamba2(const Keys& keys, std::size_t embedding, float norm_epsilon) {
  const Mamba2Spec spec{.embedding = embedding,
                        .taps = keys.count("ssm.conv_kernel", kernels::convolution_taps_max),
                        .inner = keys.count("ssm.inner_size"),
                        .heads = keys.count("ssm.time_step_rank"),
                        .groups = keys.count("ssm.group_count"),
                        .state_size = keys.count("ssm.state_size"),
                        .norm_epsilon = norm_epsilon};
  if (spec.inner % spec.heads != 0) {
    throw keys.error("ssm.time_step_rank", fmt::format("is {}, which does not divide the {} of "
                                                       "ssm.inner_size",
                                                       spec.heads, spec.inner));
  }
  if (spec.heads % spec.groups != 0) {
    throw keys.error("ssm.group_count", fmt::format("is {}, which does not divide the {} heads",
                                                    spec.groups, spec.heads));
  }
  return spec;
}

Mamba2::Mamba2(Decoder& decoder, const LayerTensors& tensors, const Mamba2Spec& spec)
    : spec_(spec) {
  const std::size_t h = spec_.heads;
  in_ = tensors.matrix("ssm_in.weight", spec_.embedding, row());
  convolution_ = {.channels = channels(),
                  .tap_count = spec_.taps,
                  .has_silu = true,
                  .taps = tensors.vector("ssm_conv1d.weight", {spec_.taps, channels()}),
                  .bias = tensors.optional_vector("ssm_conv1d.bias", {channels()})};
  dt_bias_ = tensors.vector("ssm_dt.bias", {h});
  a_ = tensors.vector("ssm_a", {1, h});
  d_ = tensors.vector("ssm_d", {1, h});
  norm_ = tensors.optional_vector("ssm_norm.weight", {spec_.inner / spec_.groups, spec_.groups});
  output_ = tensors.matrix("ssm_out.weight", spec_.inner, spec_.embedding);
  const std::size_t matrices = h * kernels::state_floats(spec_.state_size, head_dim());
  cache_layer_ = decoder.add_cache_layer({.state_floats = convolution_.tail_floats() + matrices});
}

Mamba2::Buffers Mamba2::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.projected = arena.floats(shape.columns * row());
  out.decays = arena.floats(shape.columns * spec_.heads);
  return out;
}

void Mamba2::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = spec_.embedding, columns = pass.columns.size();
  float* z = buffers_.projected;
  pass.compute.multiply(in, e, e, columns, std::array{Product{&in_, buffers_.projected, row()}});
  keep_columns(pass, fed_parts(), fed_);
  mix(pass);
  for_each_column(pass, [&](std::size_t c) { finish_column(pass, c); });
  pass.compute.multiply(z, row(), spec_.inner, columns, std::array{Product{&output_, out, e}});
}

void Mamba2::replay(Pass& pass, std::size_t first) {
  restore_columns(pass, fed_parts(), fed_ + first * fed_floats());
  mix(pass);
}

std::array<FedPart, 1> Mamba2::fed_parts() const {
  return {FedPart{buffers_.projected + spec_.inner, row(), fed_floats()}};
}

// What reads and writes the state: the convolution and the scan.
void Mamba2::mix(Pass& pass) const {
  convolution_.run(pass, cache_layer_, buffers_.projected + spec_.inner, row());
  for_each_column(pass, [&](std::size_t c) { prepare_column(pass, c); });
  for_each_part(pass, cache_layer_, spec_.heads,
                [&](const Stretch& stretch, const LayerState& state, std::size_t head) {
                  run_head(pass, stretch, state, head);
                });
}

// Computes the time steps and decays of a column.
void Mamba2::prepare_column(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t h = spec_.heads;
  float* steps = buffers_.projected + (c + 1) * row() - h;
  float* decays = buffers_.decays + c * h;
  ops.add(dt_bias_.data(), h, steps);
  ops.softplus(steps, h);
  std::memcpy(decays, steps, h * sizeof(float));
  ops.multiply(a_.data(), h, decays);
  ops.exp(decays, h);
}

// The state scan of one head over the tokens of a sequence; its outputs take the place of x.
void Mamba2::run_head(const Pass& pass, const Stretch& stretch, const LayerState& state,
                      std::size_t head) const {
  const std::size_t h = spec_.heads, n = spec_.state_size;
  const std::size_t matrix =
      convolution_.tail_floats() + head * kernels::state_floats(n, head_dim());
  float* x = buffers_.projected + stretch.first * row() + spec_.inner;
  kernels::RecurrenceArgs args{};
  args.keys = x + spec_.inner + head / (h / spec_.groups) * n;
  args.queries = args.keys + spec_.groups * n;
  args.values = args.out = x + head * head_dim();
  args.key_stride = args.value_stride = args.out_stride = row();
  args.decays = buffers_.decays + stretch.first * h + head;
  args.rates = buffers_.projected + (stretch.first + 1) * row() - h + head;
  args.decay_stride = h;
  args.rate_stride = row();
  args.skip = d_[head];
  args.state = state.before + matrix;
  args.next_state = state.after + matrix;
  args.positions = stretch.count;
  args.key_dim = n;
  args.value_dim = head_dim();
  pass.compute.kernels().recurrence.state_scan(args);
}

// z = norm(y * silu(z))
void Mamba2::finish_column(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  float* z = buffers_.projected + c * row();
  ops.swiglu(z, z + spec_.inner, spec_.inner, z);
  if (norm_.empty()) return;
  const std::size_t size = spec_.inner / spec_.groups;
  for (std::size_t at = 0; at < spec_.inner; at += size) {
    ops.rms_norm(z + at, norm_.data() + at, spec_.norm_epsilon, size, z + at);
  }
}

}  // namespace sluice::model
