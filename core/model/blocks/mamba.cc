#include "core/model/blocks/mamba.h"

#include "kernels/convolution.h"
#include "kernels/recurrence.h"

namespace sluice::model {

MambaSpec read_mamba(const Keys& keys, std::size_t embedding, float norm_epsilon) {
  return {.embedding = embedding,
          .taps = keys.count("ssm.conv_kernel", kernels::convolution_taps_max),
          .inner = keys.count("ssm.inner_size"),
          .rank = keys.count("ssm.time_step_rank"),
          .state_size = keys.count("ssm.state_size", kernels::channel_scan_key_max),
          .norm_epsilon = norm_epsilon};
}

Mamba::Mamba(Decoder& decoder, const LayerTensors& tensors, const MambaSpec& spec) : spec_(spec) {
  const std::size_t inner = spec_.inner, n = spec_.state_size;
  in_ = tensors.matrix("ssm_in.weight", spec_.embedding, row());
  convolution_ = {.channels = inner,
                  .tap_count = spec_.taps,
                  .has_silu = true,
                  .taps = tensors.vector("ssm_conv1d.weight", {spec_.taps, inner}),
                  .bias = tensors.optional_vector("ssm_conv1d.bias", {inner})};
  x_ = tensors.matrix("ssm_x.weight", inner, narrow_row());
  dt_norm_ = tensors.vector("ssm_dt_norm.weight", {spec_.rank});
  b_norm_ = tensors.vector("ssm_b_norm.weight", {n});
  c_norm_ = tensors.vector("ssm_c_norm.weight", {n});
  dt_ = tensors.matrix("ssm_dt.weight", spec_.rank, inner);
  dt_bias_ = tensors.vector("ssm_dt.bias", {inner});
  a_ = tensors.vector("ssm_a", {n, inner});
  d_ = tensors.vector("ssm_d", {inner});
  output_ = tensors.matrix("ssm_out.weight", inner, spec_.embedding);
  cache_layer_ = decoder.add_cache_layer(
      {.state_floats = convolution_.tail_floats() + kernels::state_floats(n, inner)});
}

Mamba::Buffers Mamba::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.projected = arena.floats(shape.columns * row());
  out.narrow = arena.floats(shape.columns * narrow_row());
  out.rates = arena.floats(shape.columns * spec_.inner);
  return out;
}

void Mamba::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  kept_max_ = shape.kept_columns;
}

void Mamba::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = spec_.embedding, inner = spec_.inner, columns = pass.columns.size();
  float* const x = buffers_.projected;
  const kernels::VectorOps& ops = pass.compute.ops();
  pass.compute.multiply(in, e, e, columns, std::array{Product{&in_, x, row()}});
  keep_columns(pass, convolution_parts(), fed_);
  convolution_.run(pass, cache_layer_, x, row());
  pass.compute.multiply(x, row(), inner, columns,
                        std::array{Product{&x_, buffers_.narrow, narrow_row()}});
  for_each_column(pass, [&](std::size_t c) { normalise_column(ops, c); });
  pass.compute.multiply(buffers_.narrow, narrow_row(), spec_.rank, columns,
                        std::array{Product{&dt_, buffers_.rates, inner, dt_bias_}});
  for_each_column(pass, [&](std::size_t c) { ops.softplus(buffers_.rates + c * inner, inner); });
  keep_columns(pass, scan_parts(), kept_for_scan());
  scan(pass);
  for_each_column(pass, [&](std::size_t c) {
    float* const y = x + c * row();
    ops.swiglu(y + inner, y, inner, y);
  });
  pass.compute.multiply(x, row(), inner, columns, std::array{Product{&output_, out, e}});
}

void Mamba::replay(Pass& pass, std::size_t first) {
  restore_columns(pass, convolution_parts(), fed_ + first * spec_.inner);
  restore_columns(pass, scan_parts(), kept_for_scan() + first * (fed_floats() - spec_.inner));
  convolution_.run(pass, cache_layer_, buffers_.projected, row());
  scan(pass);
}

std::array<FedPart, 1> Mamba::convolution_parts() const {
  return {FedPart{buffers_.projected, row(), spec_.inner}};
}

std::array<FedPart, 2> Mamba::scan_parts() const {
  return {FedPart{buffers_.rates, spec_.inner, spec_.inner},
          FedPart{buffers_.narrow + spec_.rank, narrow_row(), 2 * spec_.state_size}};
}

void Mamba::normalise_column(const kernels::VectorOps& ops, std::size_t c) const {
  float* part = buffers_.narrow + c * narrow_row();
  for (const Vector& weight : {dt_norm_, b_norm_, c_norm_}) {
    ops.rms_norm(part, weight.data(), spec_.norm_epsilon, weight.size(), part);
    part += weight.size();
  }
}

// Threads share the channels of a sequence, in whole slices of its state.
void Mamba::scan(Pass& pass) const {
  constexpr std::size_t part_max = 64;
  const std::size_t inner = spec_.inner, parts = (inner + part_max - 1) / part_max;
  for_each_part(pass, cache_layer_, parts,
                [&](const Stretch& stretch, const LayerState& state, std::size_t part) {
                  const std::size_t first = part * part_max;
                  const std::size_t offset = convolution_.tail_floats() + first * spec_.state_size;
                  kernels::RecurrenceArgs args{};
                  args.keys = buffers_.narrow + stretch.first * narrow_row() + spec_.rank;
                  args.queries = args.keys + spec_.state_size;
                  args.key_stride = narrow_row();
                  args.values = args.out = buffers_.projected + stretch.first * row() + first;
                  args.value_stride = args.out_stride = row();
                  args.rates = buffers_.rates + stretch.first * inner + first;
                  args.rate_stride = inner;
                  args.skips = d_.data() + first;
                  args.logs = a_.data() + first * spec_.state_size;
                  args.state = state.before + offset;
                  args.next_state = state.after + offset;
                  args.positions = stretch.count;
                  args.key_dim = spec_.state_size;
                  args.value_dim = std::min(part_max, inner - first);
                  pass.compute.kernels().recurrence.channel_scan(args);
                });
}

}  // namespace sluice::model
