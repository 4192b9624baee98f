#include "core/model/blocks/latent_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "core/model/blocks/recurrent_parts.h"  // for_each_column
#include "kvcache/layout.h"

namespace sluice::model {
namespace {

// The matrices [rows][columns] of all heads, which the file stacks, or has below each other.
std::vector<Matrix> stacked_heads(const LayerTensors& tensors, const char* name, std::size_t heads,
                                  std::size_t columns, std::size_t rows) {
  std::vector<Matrix> out;
  const bool is_flat = tensors.rows(name) == heads * rows;
  for (std::size_t h = 0; h < heads; ++h) {
    out.push_back(is_flat ? tensors.part_of_matrix(name, {columns, heads * rows}, h * rows, rows)
                          : tensors.part_of_matrix(name, {columns, rows, heads}, h * rows, rows));
  }
  return out;
}

}  // namespace

LatentAttentionSpec read_latent_attention(const Keys& keys, const HyperParameters& hp,
                                          std::uint64_t query_latents) {
  LatentAttentionSpec spec{.embedding = hp.embedding, .norm_epsilon = hp.norm_epsilon};
  spec.heads = keys.count("attention.head_count");
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  const auto rank = static_cast<std::uint32_t>(std::min(query_latents, most));
  if (rank != 0) spec.query_rank = keys.find_count("attention.q_lora_rank").value_or(rank);
  spec.latent = keys.count("attention.kv_lora_rank");
  if (spec.latent % kvcache::latent_unit != 0) {
    throw keys.error("attention.kv_lora_rank", fmt::format("is {}, expected a multiple of {}",
                                                           spec.latent, kvcache::latent_unit));
  }
  // Files for the compressed cache say the sizes of its one head by the usual names.
  keys.leave_aside("attention.head_count_kv");
  const auto size = [&](const std::string& name) {
    const std::optional<std::uint32_t> own = keys.find_count(name + "_mla");
    if (own) keys.leave_aside(name);
    return own ? *own : keys.count(name);
  };
  const std::uint32_t key = size("attention.key_length");
  spec.value = size("attention.value_length");
  spec.rotated = keys.count("rope.dimension_count", key - 1);
  spec.plain = key - spec.rotated;
  return spec;
}

LatentAttention::LatentAttention(Decoder& decoder, const LayerTensors& tensors,
                                 const LatentAttentionSpec& spec)
    : spec_(spec) {
  declare_queries(tensors);
  declare_heads(tensors);
  output_ = tensors.matrix("attn_output.weight", spec_.heads * spec_.value, spec_.embedding);
  cache_layer_ = decoder.add_cache_layer(
      {.kv_heads = 1, .key_dim = row_size(), .value_dim = spec_.latent, .keys_hold_values = true});
  const auto narrow = [](std::size_t size) { return static_cast<std::uint32_t>(size); };
  attention_ =
      CachedAttention({.layer = cache_layer_,
                       .heads = {narrow(spec_.heads), 1, narrow(row_size()), narrow(spec_.latent)},
                       .scale = spec_.scale});
}

void LatentAttention::declare_queries(const LayerTensors& tensors) {
  const std::size_t e = spec_.embedding, rank = spec_.query_rank;
  const std::size_t rows = spec_.heads * query_size();
  if (rank == 0) {
    q_ = tensors.matrix("attn_q.weight", e, rows);
  } else {
    query_latent_ = tensors.matrix("attn_q_a.weight", e, rank);
    query_norm_ = tensors.vector("attn_q_a_norm.weight", {rank});
  }
  kv_ = tensors.matrix("attn_kv_a_mqa.weight", e, row_size());
  kv_norm_ = tensors.vector("attn_kv_a_norm.weight", {spec_.latent});
  if (spec_.has_gate) gate_ = tensors.matrix("attn_gate.weight", e, spec_.heads);
  if (rank != 0) q_ = tensors.matrix("attn_q_b.weight", rank, rows);
}

void LatentAttention::declare_heads(const LayerTensors& tensors) {
  const std::size_t n = spec_.plain, r = spec_.latent, v = spec_.value;
  if (tensors.has("attn_k_b.weight")) {
    keys_ = stacked_heads(tensors, "attn_k_b.weight", spec_.heads, n, r);
    values_ = stacked_heads(tensors, "attn_v_b.weight", spec_.heads, r, v);
    tensors.leave_aside("attn_kv_b.weight");  // some files have both
    return;
  }
  are_keys_plain_ = true;
  const std::size_t rows = spec_.heads * (n + v);
  for (std::size_t h = 0; h < spec_.heads; ++h) {
    keys_.push_back(tensors.rows_of_matrix("attn_kv_b.weight", {r, rows}, h * (n + v), n));
  }
  for (std::size_t h = 0; h < spec_.heads; ++h) {
    values_.push_back(tensors.part_of_matrix("attn_kv_b.weight", {r, rows}, h * (n + v) + n, v));
    // Keys are multiplied the other way round: the columns of the matrix have these inputs alone.
    values_.back().is_first_part = true;
  }
}

std::size_t LatentAttention::size_max() const {
  return std::max(
      {spec_.embedding, spec_.query_rank, spec_.plain, spec_.latent, spec_.heads * spec_.value});
}

LatentAttention::Buffers LatentAttention::place(Arena& arena, const BufferShape& shape) const {
  const auto floats = [&](std::size_t each) { return arena.floats(shape.columns * each); };
  Buffers out;
  out.query_latents = floats(spec_.query_rank);
  out.rows = floats(row_size());
  out.heads = floats(spec_.heads * std::max(query_size(), spec_.value));
  out.queries = floats(spec_.heads * row_size());
  if (kvcache::moves_sinks(shape.cache)) out.sink_queries = floats(spec_.heads * row_size());
  out.mixed = floats(spec_.heads * spec_.latent);
  out.gates = floats(gate_.rows);
  return out;
}

void LatentAttention::measure(Arena& arena, const BufferShape& shape) const {
  place(arena, shape);
  attention_.measure(arena, shape);
}

void LatentAttention::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  attention_.bind(arena, shape);
}

void LatentAttention::run(Pass& pass, const float* in, float* out) {
  const std::size_t columns = pass.columns.size(), heads = spec_.heads;
  project(pass, in);
  absorb_keys(pass);
  for_each_column(pass, [&](std::size_t c) {
    finish_queries(pass, c);
    store_row(pass, c);
  });
  attention_.run(pass, buffers_.queries, buffers_.sink_queries, buffers_.mixed);
  const std::size_t r = spec_.latent, v = spec_.value;
  products_.clear();
  for (std::size_t h = 0; h < heads; ++h) {
    products_.push_back({&values_[h], buffers_.heads + h * v, heads * v});
  }
  pass.compute.multiply_each(buffers_.mixed, r, heads * r, r, columns, products_);
  if (spec_.has_gate) for_each_column(pass, [&](std::size_t c) { apply_gates(pass, c); });
  pass.compute.multiply(buffers_.heads, heads * v, heads * v, columns,
                        std::array{Product{&output_, out, spec_.embedding}});
}

void LatentAttention::store(Pass& pass, const float* in) {
  const std::size_t e = spec_.embedding;
  pass.compute.multiply(in, e, e, pass.columns.size(),
                        std::array{Product{&kv_, buffers_.rows, row_size()}});
  for_each_column(pass, [&](std::size_t c) { store_row(pass, c); });
}

void LatentAttention::project(Pass& pass, const float* in) {
  const Buffers& b = buffers_;
  const std::size_t e = spec_.embedding, rank = spec_.query_rank, columns = pass.columns.size();
  const Product kv{&kv_, b.rows, row_size()};
  const std::size_t q_size = spec_.heads * query_size();
  const std::array products{
      rank == 0 ? Product{&q_, b.heads, q_size} : Product{&query_latent_, b.query_latents, rank},
      kv, Product{&gate_, b.gates, spec_.heads}};
  pass.compute.multiply(in, e, e, columns, std::span(products).first(spec_.has_gate ? 3 : 2));
  if (rank == 0) return;
  for_each_column(pass, [&](std::size_t c) {
    float* latents = b.query_latents + c * rank;
    pass.compute.ops().rms_norm(latents, query_norm_.data(), spec_.norm_epsilon, rank, latents);
  });
  pass.compute.multiply(b.query_latents, rank, rank, columns,
                        std::array{Product{&q_, b.heads, q_size}});
}

// The first R elements of each query: Wk_h^T n_h.
void LatentAttention::absorb_keys(Pass& pass) {
  const std::size_t columns = pass.columns.size(), heads = spec_.heads, n = spec_.plain;
  const std::size_t stride = heads * query_size(), out_stride = heads * row_size();
  if (are_keys_plain_) {
    for (std::size_t h = 0; h < heads; ++h) {
      pass.compute.multiply_transposed(buffers_.heads + h * query_size(), stride, columns, keys_[h],
                                       buffers_.queries + h * row_size(), out_stride);
    }
    return;
  }
  products_.clear();
  for (std::size_t h = 0; h < heads; ++h) {
    products_.push_back({&keys_[h], buffers_.queries + h * row_size(), out_stride});
  }
  pass.compute.multiply_each(buffers_.heads, query_size(), stride, n, columns, products_);
}

// Adds the rotated parts to the queries of a column.
void LatentAttention::finish_queries(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t heads = spec_.heads, r = spec_.latent, t = spec_.rotated, row = row_size();
  const float* projected = buffers_.heads + c * heads * query_size();
  float* queries = buffers_.queries + c * heads * row;
  for (std::size_t h = 0; h < heads; ++h) {
    std::memcpy(queries + h * row + r, projected + h * query_size() + spec_.plain,
                t * sizeof(float));
  }
  if (spec_.temperature.beta != 0) {
    const std::uint32_t position = pass.cache.sink_query_position(pass.columns[c].position);
    ops.scale(queries, heads * row, spec_.temperature.factor(position));
  }
  if (buffers_.sink_queries != nullptr) {
    float* sink_queries = buffers_.sink_queries + c * heads * row;
    std::memcpy(sink_queries, queries, heads * row * sizeof(float));
    if (spec_.rope != nullptr) {
      spec_.rope->rotate_for_sinks(ops, sink_queries + r, heads, row, c);
    }
    pass.cache.hadamard_queries(cache_layer_, sink_queries, heads);
  }
  if (spec_.rope != nullptr) spec_.rope->rotate(ops, queries + r, heads, row, c);
  pass.cache.hadamard_queries(cache_layer_, queries, heads);
}

void LatentAttention::store_row(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t r = spec_.latent;
  float* row = buffers_.rows + c * row_size();
  ops.rms_norm(row, kv_norm_.data(), spec_.norm_epsilon, r, row);
  if (spec_.rope != nullptr) spec_.rope->rotate(ops, row + r, 1, row_size(), c);
  const Column& column = pass.columns[c];
  pass.cache.write(*column.sequence, cache_layer_, column.position, row, nullptr);
}

void LatentAttention::apply_gates(Pass& pass, std::size_t c) const {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t heads = spec_.heads, v = spec_.value;
  float* gates = buffers_.gates + c * heads;
  ops.sigmoid(gates, heads);
  for (std::size_t h = 0; h < heads; ++h) {
    ops.scale(buffers_.heads + (c * heads + h) * v, v, gates[h]);
  }
}

}  // namespace sluice::model
