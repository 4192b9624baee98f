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
  // Those of layers may differ, where the rotation is one for all.
  const std::size_t rotated = spec_.rope != nullptr ? spec_.rope->spec().parameters.dimensions : 0;
  if (rotated > spec_.heads.key_dim) {
    throw tensors.error("attn_q.weight",
                        fmt::format("has heads of {} elements, of which the metadata rotates {}",
                                    spec_.heads.key_dim, rotated));
  }
  if (spec_.scale == 0) spec_.scale = 1.0f / std::sqrt(static_cast<float>(spec_.heads.key_dim));
  if (spec_.sparse_index.block != 0) {
    index_ = std::make_unique<SparseIndex>(decoder, tensors, spec_.sparse_index);
  }
  declare_projections(tensors);
  declare_head_norms(tensors);
  declare_gate(tensors);
  if (spec_.has_sink_logits) {
    sink_logits_ = tensors.vector("attn_sinks.weight", {spec_.heads.query});
  }
  output_ = tensors.matrix("attn_output.weight", attention_size(), e);
  output_bias_ = tensors.optional_vector("attn_output.bias", {e});
  if (spec_.sees_whole_text) {
    whole_reader_ =
        WholeTextAttention({spec_.heads, spec_.scale, spec_.window / 2, spec_.has_alibi});
    return;
  }
  cache_layer_ = owns_keys() ? decoder.add_cache_layer({.kv_heads = spec_.heads.kv,
                                                        .key_dim = spec_.heads.key_dim,
                                                        .value_dim = spec_.heads.value_dim,
                                                        .window = spec_.window,
                                                        .has_chunks = spec_.has_chunks})
                             : spec_.shares_with->cache_layer_;
  reader_ = CachedAttention(
      {cache_layer_, spec_.heads, spec_.scale, spec_.softcap, sink_logits_, index_.get()});
}

void Attention::declare_head_norms(const LayerTensors& tensors) {
  const auto declare = [&](const char* name, std::size_t heads) {
    const std::size_t dim = spec_.heads.key_dim;
    switch (spec_.head_norm) {
      case HeadNorm::none:
      case HeadNorm::bare:
        return Vector{};
      case HeadNorm::each_head:
        return tensors.vector(name, {dim});
      case HeadNorm::all_heads:
      case HeadNorm::mean_of_all:
        return tensors.vector(name, {heads * dim});
      case HeadNorm::own_of_heads:
        return tensors.vector(name, {dim, heads});
    }
    return Vector{};
  };
  q_norm_ = declare("attn_q_norm.weight", spec_.heads.query);
  if (owns_keys()) {
    k_norm_ = declare("attn_k_norm.weight", spec_.heads.kv);
  } else if (spec_.head_norm != HeadNorm::none) {
    tensors.leave_aside("attn_k_norm.weight");
  }
  if (spec_.head_norm == HeadNorm::mean_of_all) {
    q_norm_bias_ = tensors.optional_vector("attn_q_norm.bias", {q_size()});
    k_norm_bias_ = tensors.optional_vector("attn_k_norm.bias", {k_size()});
  }
}

void Attention::declare_gate(const LayerTensors& tensors) {
  if (spec_.gate == AttentionGate::none || has_gate_beside_queries()) return;
  const std::size_t heads = spec_.heads.query;
  const bool is_of_heads = tensors.rows("attn_gate.weight") == heads;
  gate_ =
      tensors.matrix("attn_gate.weight", spec_.embedding, is_of_heads ? heads : attention_size());
}

// Rows of a fused projection are those of Q, K and V, one below the other.
void Attention::declare_projections(const LayerTensors& tensors) {
  if (has_gate_beside_queries() && spec_.heads.key_dim != spec_.heads.value_dim) {
    throw tensors.error("attn_q.weight",
                        fmt::format("has a gate of {} elements beside each query, but what comes "
                                    "out of a head has {}",
                                    spec_.heads.key_dim, spec_.heads.value_dim));
  }
  const std::size_t e = spec_.embedding, k = k_size(), v = v_size();
  const std::size_t q = has_gate_beside_queries() ? 2 * q_size() : q_size();
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
  if (has_gate_beside_queries()) {
    out.queries = arena.floats(shape.columns * 2 * q_size());
    out.gates = arena.floats(shape.columns * q_size());
  }
  out.q = arena.floats(shape.columns * q_size());
  if (!has_gate_beside_queries()) out.queries = out.q;
  if (gate_.rows != 0) out.gates = arena.floats(shape.columns * gate_.rows);
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
  if (index_) index_->measure(arena, shape);
  spec_.sees_whole_text ? whole_reader_.measure(arena, shape) : reader_.measure(arena, shape);
}

void Attention::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  if (index_) index_->bind(arena, shape);
  spec_.sees_whole_text ? whole_reader_.bind(arena, shape) : reader_.bind(arena, shape);
}

void Attention::run(Pass& pass, const float* in, float* out) {
  const std::size_t columns = pass.columns.size();
  if (index_) index_->run(pass, in);
  project(pass, in);
  pass.compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) prepare_column(pass, c);
  });
  if (spec_.sees_whole_text) {
    whole_reader_.run(pass, buffers_.q, buffers_.k, buffers_.v, buffers_.attention);
  } else {
    reader_.run(pass, buffers_.q, buffers_.sink_q, buffers_.attention);
  }
  if (spec_.gate != AttentionGate::none) apply_gates(pass);
  pass.compute.multiply(buffers_.attention, attention_size(), attention_size(), columns,
                        std::array{Product{&output_, out, spec_.embedding, output_bias_}});
}

void Attention::store(Pass& pass, const float* in) {
  if (index_) index_->run(pass, in);
  if (!owns_keys()) return;
  std::array<Product, 2> products{Product{&k_, buffers_.k, k_size(), k_bias_}};
  std::size_t count = 1;
  if (v_.rows != 0) products[count++] = {&v_, buffers_.v, v_size(), v_bias_};
  pass.compute.multiply(in, spec_.embedding, spec_.embedding, pass.columns.size(),
                        std::span(products).first(count));
  pass.compute.for_each(pass.columns.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) store_keys(pass, c);
  });
}

void Attention::project(Pass& pass, const float* in) {
  const Buffers& b = buffers_;
  std::array<Product, 4> products{Product{&q_, b.queries, q_.rows, q_bias_}};
  std::size_t count = 1;
  if (owns_keys()) products[count++] = {&k_, b.k, k_size(), k_bias_};
  if (owns_keys() && v_.rows != 0) products[count++] = {&v_, b.v, v_size(), v_bias_};
  if (gate_.rows != 0) products[count++] = {&gate_, b.gates, gate_.rows};
  pass.compute.multiply(in, spec_.embedding, spec_.embedding, pass.columns.size(),
                        std::span(products).first(count));
}

void Attention::prepare_column(Pass& pass, std::size_t c) const {
  prepare_queries(pass, c);
  if (owns_keys()) store_keys(pass, c);
}

// Normalises and rotates the queries of a column.
void Attention::prepare_queries(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t heads = spec_.heads.query;
  float* q = buffers_.q + c * q_size();
  if (has_gate_beside_queries()) separate_gates(c);
  if (!spec_.normalises_rotated) normalise_heads(ops, q, heads, q_norm_, q_norm_bias_);
  if (spec_.temperature.beta != 0) {
    // From where the token sees the sinks: its own position, but at most the end of a window.
    const std::uint32_t position = pass.cache.sink_query_position(pass.columns[c].position);
    ops.scale(q, q_size(), spec_.temperature.factor(position));
  }
  if (buffers_.sink_q != nullptr) {
    float* sink_q = buffers_.sink_q + c * q_size();
    std::memcpy(sink_q, q, q_size() * sizeof(float));
    turn(ops, sink_q, heads, q_norm_, q_norm_bias_, c, Place::sinks);
    pass.cache.hadamard_queries(cache_layer_, sink_q, heads);
  }
  turn(ops, q, heads, q_norm_, q_norm_bias_, c, Place::own);
  if (spec_.sees_whole_text) return;
  pass.cache.hadamard_queries(cache_layer_, q, heads);
}

void Attention::separate_gates(std::size_t c) const {
  const std::size_t dim = spec_.heads.key_dim;
  const float* projected = buffers_.queries + c * 2 * q_size();
  float* q = buffers_.q + c * q_size();
  float* gates = buffers_.gates + c * q_size();
  for (std::size_t h = 0; h < spec_.heads.query; ++h) {
    std::memcpy(q + h * dim, projected + 2 * h * dim, dim * sizeof(float));
    std::memcpy(gates + h * dim, projected + (2 * h + 1) * dim, dim * sizeof(float));
  }
}

// Normalises and rotates the keys of a column and puts them and the values into the cache.
void Attention::store_keys(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t heads = spec_.heads.kv;
  float* k = buffers_.k + c * k_size();
  float* v = buffers_.v + c * v_size();
  if (v_.rows == 0) std::memcpy(v, k, v_size() * sizeof(float));
  if (!spec_.normalises_rotated) normalise_heads(ops, k, heads, k_norm_, k_norm_bias_);
  turn(ops, k, heads, k_norm_, k_norm_bias_, c, Place::own);
  if (spec_.normalises_values) {
    for (std::size_t h = 0; h < heads; ++h) {
      float* value = v + h * spec_.heads.value_dim;
      ops.rms_norm(value, nullptr, spec_.norm_epsilon, spec_.heads.value_dim, value);
    }
  }
  if (spec_.sees_whole_text) return;
  const Column& column = pass.columns[c];
  pass.cache.write(*column.sequence, cache_layer_, column.position, k, v);
}

// Rotates heads, and normalises them where the norms stand behind the rotation.
void Attention::turn(const kernels::VectorOps& ops, float* data, std::size_t heads, Vector weight,
                     Vector bias, std::size_t c, Place place) const {
  const std::size_t dim = spec_.heads.key_dim;
  if (spec_.rope != nullptr && place == Place::own) spec_.rope->rotate(ops, data, heads, dim, c);
  if (spec_.rope != nullptr && place == Place::sinks) {
    spec_.rope->rotate_for_sinks(ops, data, heads, dim, c);
  }
  if (spec_.normalises_rotated) normalise_heads(ops, data, heads, weight, bias);
}

void Attention::normalise_heads(const kernels::VectorOps& ops, float* data, std::size_t heads,
                                Vector weight, Vector bias) const {
  if (spec_.head_norm == HeadNorm::none) return;
  const std::size_t dim = spec_.heads.key_dim;
  if (spec_.head_norm == HeadNorm::mean_of_all) {
    const float* added = bias.empty() ? nullptr : bias.data();
    return ops.layer_norm(data, weight.data(), added, spec_.norm_epsilon, heads * dim, data);
  }
  if (spec_.head_norm == HeadNorm::own_of_heads) {
    for (std::size_t at = 0; at < heads * dim; at += dim) {
      ops.layer_norm(data + at, weight.data() + at, nullptr, spec_.norm_epsilon, dim, data + at);
    }
    return;
  }
  const std::size_t size = weight.empty() ? dim : weight.size();
  for (std::size_t at = 0; at < heads * dim; at += size) {
    ops.rms_norm(data + at, weight.data(), spec_.norm_epsilon, size, data + at);
  }
}

void Attention::apply_gates(Pass& pass) const {
  pass.compute.for_each(pass.columns.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) apply_gates(pass.compute.ops(), c);
  });
}

void Attention::apply_gates(const kernels::VectorOps& ops, std::size_t c) const {
  const std::size_t size = attention_size();
  const std::size_t count = has_gate_beside_queries() ? size : gate_.rows;
  float* gates = buffers_.gates + c * count;
  float* out = buffers_.attention + c * size;
  if (spec_.gate == AttentionGate::softplus) {
    ops.softplus(gates, count);
  } else if (count == size) {
    return ops.multiply_by_sigmoid(gates, size, out);
  } else {
    ops.sigmoid(gates, count);
  }
  if (count == size) return ops.multiply(gates, size, out);
  const std::size_t dim = spec_.heads.value_dim;
  for (std::size_t h = 0; h < count; ++h) ops.scale(out + h * dim, dim, gates[h]);
}

}  // namespace sluice::model
