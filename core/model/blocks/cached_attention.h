// The part of attention that reads the cache: softmax(scale * q . k) v for all query heads of a
// step, over the positions that each token sees. The blocks around it make queries, write keys and
// values to the cache, and project the outputs.
#pragma once

#include <cstddef>

#include "core/model/arena.h"
#include "core/model/blocks/sparse_index.h"
#include "core/model/hyper_parameters.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace sluice::model {

struct CachedAttentionSpec {
  std::size_t layer = 0;    // of the cache
  Heads heads = {};         // as the cache has them
  float scale = 0;          // of scores
  float softcap = 0;        // of scores; 0: none
  Vector sink_logits = {};  // [H], each joins the scores of its head and has no value; or empty
  const SparseIndex* index = nullptr;  // says what columns see; null: all of their windows
};

class CachedAttention {
 public:
  CachedAttention() = default;
  explicit CachedAttention(const CachedAttentionSpec& spec) : spec_(spec) {}

  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape);

  // q: [columns][H D], after KvCache::hadamard_queries(). sink_q: the same, rotated for the sinks;
  // null where the cache never moves them. out: [columns][H Dv].
  void run(Pass& pass, const float* q, const float* sink_q, float* out);

 private:
  struct Buffers {
    float* scores = nullptr;                // [threads][columns of a block][H / G][query_scratch]
    kernels::AttentionRun* runs = nullptr;  // [threads][runs_max]
    Stretch* blocks = nullptr;              // columns that read the cache together
  };
  // What run() was given.
  struct Arrays {
    const float* q;
    const float* sink_q;
    float* out;
  };
  // Query heads [first, first + count) of those of a KV head.
  struct SomeHeads {
    std::size_t kv_head, first, count;
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;
  std::size_t runs_max(const BufferShape& shape) const;
  std::size_t query_scratch(const BufferShape& shape) const;
  std::size_t columns_together(const Pass& pass, std::size_t column, std::size_t count) const;
  std::size_t find_blocks(const Pass& pass) const;
  void attend_block(const Pass& pass, const Stretch& block, const SomeHeads& heads,
                    std::size_t member, const Arrays& arrays) const;

  // The most columns that read the cache together. More queries than this gain little, and each
  // needs room for its scores.
  std::size_t block_columns() const;

  std::size_t group() const { return spec_.heads.query / spec_.heads.kv; }
  std::size_t q_size() const { return std::size_t{spec_.heads.query} * spec_.heads.key_dim; }
  std::size_t out_size() const { return std::size_t{spec_.heads.query} * spec_.heads.value_dim; }

  CachedAttentionSpec spec_;
  Buffers buffers_;
  std::size_t block_max_ = 0;  // columns of a block
  std::size_t query_scratch_ = 0;
  std::size_t runs_max_ = 0;
};

}  // namespace sluice::model
