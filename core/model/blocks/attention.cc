#include "core/model/blocks/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace sluice::model {

Attention::Attention(Decoder& decoder, const LayerTensors& tensors, const AttentionSpec& spec)
    : spec_(spec) {
  const std::size_t e = spec_.embedding;
  if (spec_.heads.query == 0) {
    throw tensors.error("attn_output.weight",
                        "belongs to attention, but the metadata gives this layer no heads");
  }
  if (!owns_keys()) {
    const Heads& shared = spec_.shares_with->heads();
    spec_.heads = {spec_.heads.query, shared.kv, shared.key_dim, shared.value_dim};
    if (spec_.heads.query % shared.kv != 0) {
      throw tensors.error("attn_q.weight", fmt::format("has {} heads, which the {} heads of the "
                                                       "keys that this layer shares do not divide",
                                                       spec_.heads.query, shared.kv));
    }
  }
  if (spec_.scale == 0) spec_.scale = 1.0f / std::sqrt(static_cast<float>(spec_.heads.key_dim));
  declare_projections(tensors);
  if (spec_.head_norm != HeadNorm::none) {
    const bool is_each = spec_.head_norm == HeadNorm::each_head;
    q_norm_ = tensors.vector("attn_q_norm.weight", {is_each ? spec_.heads.key_dim : q_size()});
    if (owns_keys()) {
      k_norm_ = tensors.vector("attn_k_norm.weight", {is_each ? spec_.heads.key_dim : k_size()});
    } else {
      tensors.leave_aside("attn_k_norm.weight");
    }
  }
  if (spec_.has_sink_logits) {
    sink_logits_ = tensors.vector("attn_sinks.weight", {spec_.heads.query});
  }
  output_ = tensors.matrix("attn_output.weight", attention_size(), e);
  output_bias_ = tensors.optional_vector("attn_output.bias", {e});
  cache_layer_ = owns_keys() ? decoder.add_cache_layer({.kv_heads = spec_.heads.kv,
                                                        .key_dim = spec_.heads.key_dim,
                                                        .value_dim = spec_.heads.value_dim,
                                                        .window = spec_.window})
                             : spec_.shares_with->cache_layer_;
  reader_ = CachedAttention({cache_layer_, spec_.heads, spec_.scale, spec_.softcap, sink_logits_});
}

// Rows of a fused projection are those of Q, K and V, one below the other.
void Attention::declare_projections(const LayerTensors& tensors) {
  const std::size_t e = spec_.embedding, k = k_size(), v = v_size();
  const std::size_t q = spec_.is_gated ? 2 * q_size() : q_size();
  if (tensors.has("attn_qkv.weight") && owns_keys()) {
    const std::size_t rows = q + k + v;
    q_ = tensors.part_of_matrix("attn_qkv.weight", {e, rows}, 0, q);
    k_ = tensors.part_of_matrix("attn_qkv.weight", {e, rows}, q, k);
    v_ = tensors.part_of_matrix("attn_qkv.weight", {e, rows}, q + k, v);
    const Vector bias = tensors.optional_vector("attn_qkv.bias", {rows});
    if (bias.empty()) return;
    q_bias_ = bias.first(q);
    k_bias_ = bias.subspan(q, k);
    v_bias_ = bias.last(v);
    return;
  }
  q_ = tensors.matrix("attn_q.weight", e, q);
  q_bias_ = tensors.optional_vector("attn_q.bias", {q});
  if (!owns_keys()) {
    for (const char* name : {"attn_k.weight", "attn_v.weight"}) tensors.leave_aside(name);
    return;
  }
  k_ = tensors.matrix("attn_k.weight", e, k);
  k_bias_ = tensors.optional_vector("attn_k.bias", {k});
  if (spec_.keys_may_be_values && !tensors.has("attn_v.weight")) {
    if (k == v) return;
    throw tensors.error("attn_v.weight", fmt::format("is missing, and keys of {} elements cannot "
                                                     "stand for values of {}",
                                                     spec_.heads.key_dim, spec_.heads.value_dim));
  }
  v_ = tensors.matrix("attn_v.weight", e, v);
  v_bias_ = tensors.optional_vector("attn_v.bias", {v});
}

Attention::Buffers Attention::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  if (spec_.is_gated) {
    out.queries = arena.floats(shape.columns * 2 * q_size());
    out.gates = arena.floats(shape.columns * q_size());
  }
  out.q = arena.floats(shape.columns * q_size());
  if (!spec_.is_gated) out.queries = out.q;
  if (owns_keys()) {
    out.k = arena.floats(shape.columns * k_size());
    out.v = arena.floats(shape.columns * v_size());
  }
  out.attention = arena.floats(shape.columns * attention_size());
  if (kvcache::moves_sinks(shape.cache)) out.sink_q = arena.floats(shape.columns * q_size());
  return out;
}

void Attention::measure(Arena& arena, const BufferShape& shape) const {
  place(arena, shape);
  reader_.measure(arena, shape);
}

void Attention::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  reader_.bind(arena, shape);
}

void Attention::run(Pass& pass, const float* in, float* out) {
  const std::size_t columns = pass.columns.size();
  project(pass, in);
  pass.compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) prepare_column(pass, c);
  });
  reader_.run(pass, buffers_.q, buffers_.sink_q, buffers_.attention);
  if (spec_.is_gated) apply_gates(pass);
  pass.compute.multiply(buffers_.attention, attention_size(), attention_size(), columns,
                        std::array{Product{&output_, out, spec_.embedding, output_bias_}});
}

void Attention::project(Pass& pass, const float* in) {
  const Buffers& b = buffers_;
  const std::array products{Product{&q_, b.queries, q_.rows, q_bias_},
                            Product{&k_, b.k, k_size(), k_bias_},
                            Product{&v_, b.v, v_size(), v_bias_}};
  const std::size_t count = !owns_keys() ? 1 : v_.rows == 0 ? 2 : 3;
  pass.compute.multiply(in, spec_.embedding, spec_.embedding, pass.columns.size(),
                        std::span(products).first(count));
}

void Attention::prepare_column(Pass& pass, std::size_t c) const {
  prepare_queries(pass, c);
  if (owns_keys()) store_keys(pass, c);
}

// Normalises and rotates the queries of a column, and separates them from their gates.
void Attention::prepare_queries(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t heads = spec_.heads.query, dim = spec_.heads.key_dim;
  float* q = buffers_.q + c * q_size();
  if (spec_.is_gated) {
    const float* projected = buffers_.queries + c * 2 * q_size();
    float* gates = buffers_.gates + c * q_size();
    for (std::size_t h = 0; h < heads; ++h) {
      std::memcpy(q + h * dim, projected + 2 * h * dim, dim * sizeof(float));
      std::memcpy(gates + h * dim, projected + (2 * h + 1) * dim, dim * sizeof(float));
    }
  }
  if (spec_.head_norm != HeadNorm::none) normalise_heads(ops, q, heads, q_norm_);
  if (spec_.temperature.beta != 0) {
    // From where the token sees the sinks: its own position, but at most the end of a window.
    const std::uint32_t position = pass.cache.sink_query_position(pass.columns[c].position);
    ops.scale(q, q_size(), spec_.temperature.factor(position));
  }
  if (buffers_.sink_q != nullptr) {
    float* sink_q = buffers_.sink_q + c * q_size();
    std::memcpy(sink_q, q, q_size() * sizeof(float));
    if (spec_.rope != nullptr) spec_.rope->rotate_for_sinks(ops, sink_q, heads, dim, c);
    pass.cache.hadamard_queries(cache_layer_, sink_q, heads);
  }
  if (spec_.rope != nullptr) spec_.rope->rotate(ops, q, heads, dim, c);
  pass.cache.hadamard_queries(cache_layer_, q, heads);
}

// Normalises and rotates the keys of a column and puts them and the values into the cache.
void Attention::store_keys(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t heads = spec_.heads.kv, dim = spec_.heads.key_dim;
  float* k = buffers_.k + c * k_size();
  float* v = buffers_.v + c * v_size();
  if (v_.rows == 0) std::memcpy(v, k, v_size() * sizeof(float));
  if (spec_.head_norm != HeadNorm::none) normalise_heads(ops, k, heads, k_norm_);
  if (spec_.rope != nullptr) spec_.rope->rotate(ops, k, heads, dim, c);
  if (spec_.normalises_values) {
    for (std::size_t h = 0; h < heads; ++h) {
      float* value = v + h * spec_.heads.value_dim;
      ops.rms_norm(value, nullptr, spec_.norm_epsilon, spec_.heads.value_dim, value);
    }
  }
  const Column& column = pass.columns[c];
  pass.cache.write(*column.sequence, cache_layer_, column.position, k, v);
}

void Attention::normalise_heads(const kernels::VectorOps& ops, float* data, std::size_t heads,
                                Vector weight) const {
  for (std::size_t at = 0; at < heads * spec_.heads.key_dim; at += weight.size()) {
    ops.rms_norm(data + at, weight.data(), spec_.norm_epsilon, weight.size(), data + at);
  }
}

void Attention::apply_gates(Pass& pass) const {
  const std::size_t size = attention_size();
  pass.compute.for_each(pass.columns.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    const std::size_t at = begin * size, count = (end - begin) * size;
    pass.compute.ops().multiply_by_sigmoid(buffers_.gates + at, count, buffers_.attention + at);
  });
}

}  // namespace sluice::model
