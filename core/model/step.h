// What a step is, and what the blocks of a decoder see of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/compute.h"
#include "kvcache/kv_cache.h"

namespace sluice::model {

// A token of a step: to which sequence it belongs, and its place there.
struct Column {
  const kvcache::Sequence* sequence;
  std::uint32_t position;
  std::int32_t token;
};

// Consecutive tokens of one sequence: columns [first, first + count) of a step.
struct Stretch {
  std::size_t first, count;
};

// One step: some tokens, of one or of several sequences, through all layers. The tokens of a
// sequence stand together, by ascending positions; KvCache::prepare() has made room for them.
struct Step {
  std::span<const Column> columns;
  const kvcache::KvCache& cache;
  float* x;  // [columns][embedding]: in, the embedded tokens; out, the last layer
};

// A step as a block sees it.
struct Pass {
  Compute& compute;
  const kvcache::KvCache& cache;
  std::span<const Column> columns;
  std::span<const Stretch> stretches;  // all columns, in order
};

// For how large steps, and over which cache, buffers are made.
struct BufferShape {
  std::size_t columns;  // the most of a step
  std::size_t threads;
  const kvcache::CacheConfig& cache;
};

}  // namespace sluice::model
