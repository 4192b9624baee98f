// A step, and what the blocks of a decoder see of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/compute.h"
#include "kvcache/kv_cache.h"

namespace sluice::model {

// A token of a step: its sequence, and its position there.
struct Column {
  const kvcache::Sequence* sequence;
  std::uint32_t position;
  std::int32_t token;
};

// Consecutive tokens of one sequence: columns [first, first + count) of a step.
struct Stretch {
  std::size_t first, count;
};

// One step: some tokens, of one or several sequences, through all layers. The tokens of one
// sequence stand together, by ascending positions. KvCache::prepare() has made room for them.
struct Step {
  std::span<const Column> columns;
  const kvcache::KvCache& cache;
  float* x;  // [columns][embedding]; in: the embedded tokens; out: the output of the last layer
  // The columns whose part in recurrent states is kept (Block::replay), at most
  // BufferShape::kept_columns.
  std::span<const std::size_t> kept = {};
};

// A step as a block sees it.
struct Pass {
  Compute& compute;
  const kvcache::KvCache& cache;
  std::span<const Column> columns;
  std::span<const Stretch> stretches;  // all columns, in order
  std::span<const std::size_t> kept;   // as in Step
  // The stream as the last residual with `keeps_input` saw it, [columns][E]; null without one.
  const float* kept_input;
};

// The largest steps, and the cache, for which buffers are made.
struct BufferShape {
  std::size_t columns;  // the most of a step
  std::size_t threads;
  const kvcache::CacheConfig& cache;
  std::size_t kept_columns = 0;
};

}  // namespace sluice::model
