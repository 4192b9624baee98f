#include "core/model/blocks/cached_attention.h"

#include <algorithm>
#include <numeric>

namespace sluice::model {

std::size_t CachedAttention::block_columns() const {
  constexpr std::size_t queries = 32;
  return std::max<std::size_t>(1, queries / group());
}

CachedAttention::Buffers CachedAttention::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.scores = arena.floats(shape.threads * std::min(shape.columns, block_columns()) * group() *
                            query_scratch(shape));
  out.runs = arena.take<kernels::AttentionRun>(shape.threads * runs_max(shape));
  out.blocks = arena.take<Stretch>(shape.columns);
  return out;
}

void CachedAttention::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  block_max_ = std::min(shape.columns, block_columns());
  query_scratch_ = query_scratch(shape);
  runs_max_ = runs_max(shape);
}

std::size_t CachedAttention::runs_max(const BufferShape& shape) const {
  const std::size_t all = kvcache::runs_max(shape.cache);
  if (spec_.index == nullptr) return all;
  return std::max(all, spec_.index->runs_max() + shape.cache.window.sink_pages());
}

std::size_t CachedAttention::query_scratch(const BufferShape& shape) const {
  const std::size_t dim = spec_.heads.key_dim;
  const std::size_t all = kvcache::query_scratch(shape.cache, dim);
  if (spec_.index == nullptr) return all;
  const std::size_t most = spec_.index->visible_max() + shape.cache.window.sinks;
  return std::max(all, kernels::attention_scratch(most, runs_max(shape), dim));
}

// How many of `count` columns from this one on may read the cache in one call.
std::size_t CachedAttention::columns_together(const Pass& pass, std::size_t column,
                                              std::size_t count) const {
  if (spec_.index != nullptr) {
    std::size_t alike = 0;
    while (alike < count && spec_.index->visible(column + alike).empty()) ++alike;
    if (alike == 0) return 1;
    count = alike;
  }
  return pass.cache.columns_together(spec_.layer, pass.columns[column].position,
                                     static_cast<std::uint32_t>(count));
}

// Cuts the columns of a step into blocks that read the cache together; returns their number.
std::size_t CachedAttention::find_blocks(const Pass& pass) const {
  std::size_t count = 0;
  for (const Stretch& stretch : pass.stretches) {
    for (std::size_t done = 0; done < stretch.count; done += block_max_) {
      buffers_.blocks[count++] = {stretch.first + done, std::min(block_max_, stretch.count - done)};
    }
  }
  return count;
}

// A work item is a KV head and a block of columns. If there are too few of these to share evenly,
// the query heads of a KV head are split among several items.
void CachedAttention::run(Pass& pass, const float* q, const float* sink_q, float* out) {
  const std::size_t blocks = find_blocks(pass), threads = pass.compute.threads();
  const std::size_t items = spec_.heads.kv * blocks;
  const bool are_many = items >= 8 * threads;
  const std::size_t parts = are_many ? 1 : std::min(group(), threads / std::gcd(items, threads));
  pass.compute.for_each(items * parts, [&](std::size_t member, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const Stretch& block = buffers_.blocks[i / parts % blocks];
      const std::size_t kv_head = i / parts / blocks;
      const topology::WorkRange part = topology::split(group(), 1, parts, i % parts);
      attend_block(pass, block, {kv_head, part.begin, part.size()}, member, {q, sink_q, out});
    }
  });
}

void CachedAttention::attend_block(const Pass& pass, const Stretch& block, const SomeHeads& heads,
                                   std::size_t member, const Arrays& arrays) const {
  const std::size_t first_head = heads.kv_head * group() + heads.first;
  kvcache::Queries queries{};
  queries.heads = heads.count;
  queries.query_stride = q_size();
  queries.out_stride = out_size();
  queries.scale = spec_.scale;
  queries.softcap = spec_.softcap;
  queries.sink_logits = spec_.sink_logits.empty() ? nullptr : spec_.sink_logits.data() + first_head;
  queries.scores = buffers_.scores + member * block_max_ * group() * query_scratch_;
  queries.score_stride = query_scratch_;
  queries.runs = buffers_.runs + member * runs_max_;
  for (std::size_t done = 0; done < block.count; done += queries.columns) {
    const std::size_t c = block.first + done;
    const Column& column = pass.columns[c];
    const std::size_t query = c * q_size() + first_head * spec_.heads.key_dim;
    queries.near = arrays.q + query;
    queries.at_sinks = arrays.sink_q == nullptr ? nullptr : arrays.sink_q + query;
    queries.columns = columns_together(pass, c, block.count - done);
    if (spec_.index != nullptr) queries.visible = spec_.index->visible(c);
    queries.out = arrays.out + c * out_size() + first_head * spec_.heads.value_dim;
    pass.cache.attend(*column.sequence, spec_.layer, heads.kv_head, column.position, queries);
    for (std::size_t k = 0; k < queries.columns; ++k) {
      pass.cache.hadamard(queries.out + k * queries.out_stride, heads.count, spec_.heads.value_dim);
    }
  }
}

}  // namespace sluice::model
