// The part of attention that looks both ways: softmax(scale * q . k) v for all query heads of a
// step, over the whole text of each token, or so many positions to either side. A step has all
// tokens of its texts, so there is no cache. The block around it makes queries, keys and values,
// and projects the outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model/arena.h"
#include "core/model/hyper_parameters.h"
#include "core/model/step.h"

namespace sluice::model {

struct WholeTextAttentionSpec {
  Heads heads = {};
  float scale = 0;          // of scores
  std::uint32_t reach = 0;  // how far a token sees to either side; 0: the whole text
  // Scores lose a slope of their head times the distance of the two tokens (ALiBi, Press et al.
  // 2022); not with a reach.
  bool has_alibi = false;
};

// The slope of head `head` of `heads`: 2^(-8 (h + 1) / n) for the n heads up to the largest power
// of two, and for those behind them the odd powers of half the step.
float alibi_slope(std::size_t head, std::size_t heads);

class WholeTextAttention {
 public:
  WholeTextAttention() = default;
  explicit WholeTextAttention(const WholeTextAttentionSpec& spec) : spec_(spec) {}

  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape);

  // q: [columns][H D], k: [columns][G D], v: [columns][G Dv], out: [columns][H Dv]; none are the
  // same. The stretches of the pass are whole texts.
  void run(Pass& pass, const float* q, const float* k, const float* v, float* out);

 private:
  // Heads apart, so that the rows of one lie one after the other.
  struct Buffers {
    float* q = nullptr;                     // [H][columns][D]
    float* k = nullptr;                     // [G][columns][D]
    float* v = nullptr;                     // [G][columns][Dv]
    float* out = nullptr;                   // [H][columns][Dv]
    float* distances = nullptr;             // [2 columns - 1], |i - (columns - 1)|; only with ALiBi
    float* scores = nullptr;                // [threads][block_columns][score_stride_]
    kernels::AttentionRun* runs = nullptr;  // [threads][runs_max_]
    Stretch* blocks = nullptr;              // columns of a text that are one work item
  };
  // Some columns of a text and the text, as columns of the step.
  struct Block {
    Stretch columns, text;
  };
  // Queries that one call of the kernel can compute: `count` from `first` on. Either all of them
  // see positions [begin, end) of the step, or each sees `window` up to `end`, the last query, and
  // up to one less each before it.
  struct Call {
    std::size_t first, count, begin, end, window;
  };

  static constexpr std::size_t block_columns = 32;  // most queries that read the keys together

  Buffers place(Arena& arena, const BufferShape& shape) const;
  std::size_t find_blocks(const Pass& pass) const;
  void part_heads(Pass& pass, const float* q, const float* k, const float* v) const;
  void join_heads(Pass& pass, float* out) const;
  Call call_at(const Block& block, std::size_t first) const;
  void attend(const Pass& pass, const Block& block, std::size_t head, std::size_t member) const;
  void compute(const Pass& pass, const Block& block, const Call& call, std::size_t head,
               std::size_t member) const;

  WholeTextAttentionSpec spec_;
  Buffers buffers_;
  std::size_t columns_max_ = 0, score_stride_ = 0, runs_max_ = 0;
};

}  // namespace sluice::model
