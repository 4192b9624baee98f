#include "core/model/blocks/sparse_index.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace sluice::model {
namespace {

constexpr std::uint32_t block_max = 64;  // tokens of a block
constexpr std::size_t pairs_max = 256;

}  // namespace

SparseIndexSpec read_sparse_index(const Keys& keys, const HyperParameters& hp) {
  constexpr std::uint32_t heads_max = 1024, dim_max = 1024;
  return {.embedding = hp.embedding,
          .heads = keys.count("attention.indexer.head_count", heads_max),
          .dim = keys.count("attention.indexer.key_length", dim_max),
          .top_tokens = keys.count("attention.indexer.top_k"),
          .norm_epsilon = hp.norm_epsilon};
}

SparseIndex::SparseIndex(Decoder& decoder, const LayerTensors& tensors, const SparseIndexSpec& spec)
    : spec_(spec), rope_(spec.rope->spec().parameters, {}) {
  const char* const name = "indexer.k_proj.weight";
  if (spec_.block > block_max || spec_.block > spec_.top_tokens) {
    throw tensors.error(name, fmt::format("belongs to blocks of {} tokens, expected at most {} and "
                                          "the {} of attention.indexer.top_k",
                                          spec_.block, block_max, spec_.top_tokens));
  }
  if (2 * rope_.pairs() > spec_.dim || rope_.pairs() > pairs_max) {
    throw tensors.error(
        name, fmt::format("makes keys of {} elements, of which {} cannot be rotated", spec_.dim,
                          2 * rope_.pairs()));
  }
  query_ = tensors.matrix("indexer.q_proj.weight", spec_.embedding, spec_.heads * spec_.dim);
  key_ = tensors.matrix(name, spec_.embedding, spec_.dim);
  query_norm_ = tensors.vector("indexer.q_norm.weight", {spec_.dim});
  key_norm_ = tensors.vector("indexer.k_norm.weight", {spec_.dim});
  cache_layer_ = decoder.add_cache_layer(
      {.kv_heads = 1, .key_dim = spec_.dim, .state_floats = (spec_.block - 1) * spec_.dim});
}

std::size_t SparseIndex::blocks_of(const BufferShape& shape) const {
  return kvcache::visible_positions_max(shape.cache) / spec_.block + 1;
}

SparseIndex::Buffers SparseIndex::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.queries = arena.floats(shape.columns * spec_.heads * spec_.dim);
  out.keys = arena.floats(shape.columns * spec_.dim);
  out.rows = arena.floats(shape.threads * spec_.dim);
  out.scores = arena.take<Scored>(shape.threads * blocks_of(shape));
  out.ranges = arena.take<kvcache::PositionRange>(shape.columns * ranges_max());
  out.counts = arena.take<std::size_t>(shape.columns);
  return out;
}

std::span<const kvcache::PositionRange> SparseIndex::visible(std::size_t column) const {
  return {buffers_.ranges + column * ranges_max(), buffers_.counts[column]};
}

void SparseIndex::run(Pass& pass, const float* in) {
  const std::size_t e = spec_.embedding, dim = spec_.dim, columns = pass.columns.size();
  const Buffers& b = buffers_;
  pass.compute.multiply(
      in, e, e, columns,
      std::array{Product{&query_, b.queries, spec_.heads * dim}, Product{&key_, b.keys, dim}});
  if (fed_floats() != 0) keep_columns(pass, std::array{fed_part()}, fed_);
  // A block that ends in the step is compared with the tokens of the step: all keys come first.
  for (const Stretch& stretch : pass.stretches) {
    for (std::size_t i = 0; i < stretch.count; ++i) store_block(pass, stretch, i, b.rows);
  }
  keep_tail(pass);
  pass.compute.for_each(columns, [&](std::size_t member, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) choose(pass, c, member);
  });
}

void SparseIndex::replay(Pass& pass, std::size_t first) {
  if (fed_floats() == 0) return;
  restore_columns(pass, std::array{fed_part()}, fed_ + first * fed_floats());
  keep_tail(pass);
}

// Wk h of the token `distance` before column i of a stretch, which stands at `position` and in the
// same block.
const float* SparseIndex::key_before(const LayerState& state, const Stretch& stretch, std::size_t i,
                                     std::size_t distance, std::uint32_t position) const {
  if (distance <= i) return buffers_.keys + (stretch.first + i - distance) * spec_.dim;
  return state.before + (position - distance) % spec_.block * spec_.dim;
}

// Writes the key of the block that column i ends, if it ends one.
void SparseIndex::store_block(Pass& pass, const Stretch& stretch, std::size_t i, float* row) const {
  const Column& column = pass.columns[stretch.first + i];
  if ((column.position + 1) % spec_.block != 0) return;
  const kernels::VectorOps& ops = pass.compute.ops();
  const LayerState state = state_of(pass, stretch, cache_layer_);
  std::fill_n(row, spec_.dim, 0.0f);
  for (std::size_t distance = spec_.block; distance-- > 0;) {
    ops.add(key_before(state, stretch, i, distance, column.position), spec_.dim, row);
  }
  ops.scale(row, spec_.dim, 1 / static_cast<float>(spec_.block));
  ops.rms_norm(row, key_norm_.data(), spec_.norm_epsilon, spec_.dim, row);
  std::array<float, pairs_max> cosines, sines;
  rope_.angles(column.position + 1 - spec_.block, cosines.data(), sines.data());
  ops.rope_neox(row, cosines.data(), sines.data(), rope_.pairs());
  pass.cache.write(*column.sequence, cache_layer_, column.position, row, nullptr);
}

// Writes the tokens of the blocks that are not complete to the next states.
void SparseIndex::keep_tail(Pass& pass) const {
  for (const Stretch& stretch : pass.stretches) {
    const LayerState state = state_of(pass, stretch, cache_layer_);
    const std::uint32_t last = pass.columns[stretch.first + stretch.count - 1].position;
    const std::uint32_t kept = (last + 1) % spec_.block;
    std::fill_n(state.after, (spec_.block - 1) * spec_.dim, 0.0f);
    for (std::uint32_t place = 0; place < kept; ++place) {
      const float* key = key_before(state, stretch, stretch.count - 1, kept - 1 - place, last);
      std::copy_n(key, spec_.dim, state.after + place * spec_.dim);
    }
  }
}

// Chooses what a column sees.
void SparseIndex::choose(Pass& pass, std::size_t c, std::size_t member) const {
  buffers_.counts[c] = 0;
  const Column& column = pass.columns[c];
  const std::uint32_t block = spec_.block, end = column.position + 1;
  const std::uint32_t begin = pass.cache.window_begin(cache_layer_, column.position);
  const std::uint32_t first = (begin + block - 1) / block, complete = end / block;
  if (complete <= first + blocks_max()) return;
  const kernels::VectorOps& ops = pass.compute.ops();
  float* const queries = buffers_.queries + c * spec_.heads * spec_.dim;
  for (std::size_t h = 0; h < spec_.heads; ++h) {
    float* const query = queries + h * spec_.dim;
    ops.rms_norm(query, query_norm_.data(), spec_.norm_epsilon, spec_.dim, query);
  }
  spec_.rope->rotate(ops, queries, spec_.heads, spec_.dim, c);
  pass.cache.hadamard_queries(cache_layer_, queries, spec_.heads);

  float* const key = buffers_.rows + member * spec_.dim;
  Scored* const scores = buffers_.scores + member * blocks_;
  Scored* last = scores;
  for (std::uint32_t b = first; b < complete; ++b) {
    pass.cache.read_key(*column.sequence, cache_layer_, (b + 1) * block - 1, key);
    *last++ = {score(queries, key), b};
  }
  const auto best = scores + blocks_max();
  std::nth_element(scores, best, last, [](const Scored& a, const Scored& b) {
    return a.score > b.score || (a.score == b.score && a.block < b.block);
  });
  std::sort(scores, best, [](const Scored& a, const Scored& b) { return a.block < b.block; });
  kvcache::PositionRange* const ranges = buffers_.ranges + c * ranges_max();
  std::size_t& count = buffers_.counts[c];
  const auto see = [&](std::uint32_t from, std::uint32_t to) {
    if (count != 0 && ranges[count - 1].end == from) {
      ranges[count - 1].end = to;
    } else if (from != to) {
      ranges[count++] = {from, to};
    }
  };
  for (const Scored* s = scores; s != best; ++s) see(s->block * block, (s->block + 1) * block);
  see(complete * block, end);
}

// Sums over lanes in a fixed order, so that all machines choose alike. NaN counts as 0, because
// scores are compared.
float SparseIndex::score(const float* queries, const float* key) const {
  constexpr std::size_t lanes = 16;
  float sum = 0;
  for (std::size_t h = 0; h < spec_.heads; ++h, queries += spec_.dim) {
    std::array<float, lanes> parts{};
    std::size_t i = 0;
    for (; i + lanes <= spec_.dim; i += lanes) {
      for (std::size_t j = 0; j < lanes; ++j) parts[j] += queries[i + j] * key[i + j];
    }
    for (; i < spec_.dim; ++i) parts[0] += queries[i] * key[i];
    float product = 0;
    for (const float part : parts) product += part;
    sum += std::max(0.0f, product);
  }
  return sum;
}

}  // namespace sluice::model
