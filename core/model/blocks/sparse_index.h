// The indexer of block-sparse attention, as Qwen 3.8 Flash Next has it (QSA): a token sees the best
// blocks of its past, and the tokens behind the last whole block. Blocks are r tokens from a
// multiple of r on. Small heads q of the token look at one key of each block that is complete:
//
//   K_b = rotate(rms_norm(mean of Wk h over the block), the position of its first token)
//   s_b = the sum over heads of max(0, q . K_b)
//
// and the `top_tokens` / r blocks with the highest s_b are seen, of equal ones the earlier. While
// there are no more blocks than that, a token sees everything, and nothing is computed but the
// keys.
//
// The cache keeps K_b at the position of the last token of its block. The state of a sequence has
// Wk h of the tokens of the block that is not complete. With a sliding window only blocks that lie
// in the window as a whole are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/model/blocks/recurrent_parts.h"
#include "core/model/decoder.h"
#include "core/model/keys.h"
#include "core/model/rotary_table.h"
#include "core/model/weights.h"

namespace sluice::model {

struct SparseIndexSpec {
  std::size_t embedding = 0;  // E
  std::size_t heads = 0;      // of q
  std::size_t dim = 0;        // of q and K
  std::uint32_t block = 0;    // r
  std::uint32_t top_tokens = 0;
  float norm_epsilon = 0;
  const RotaryTable* rope = nullptr;  // of attention
};

// Reads the keys "attention.indexer.*" for layers with blocks of some tokens. Throws ModelError.
SparseIndexSpec read_sparse_index(const Keys& keys, const HyperParameters& hp);

class SparseIndex {
 public:
  // Tensors indexer.q_proj, indexer.k_proj, indexer.q_norm and indexer.k_norm. Throws ModelError.
  SparseIndex(Decoder& decoder, const LayerTensors& tensors, const SparseIndexSpec& spec);

  // Of a token that does not see everything: the most runs within pages of the cache that it sees.
  std::size_t runs_max() const {
    return ranges_max() * (spec_.block / kvcache::page_positions + 2);
  }
  // The most positions.
  std::size_t visible_max() const { return (blocks_max() + 1) * spec_.block - 1; }

  std::size_t size_max() const { return spec_.embedding; }
  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) {
    buffers_ = place(arena, shape);
    blocks_ = blocks_of(shape);
  }

  // Computes keys, and what the columns of the step see; in: [columns][E].
  void run(Pass& pass, const float* in);
  // After run(): what a column sees, by ascending positions; empty where it sees everything.
  std::span<const kvcache::PositionRange> visible(std::size_t column) const;

  // See Block.
  std::size_t fed_floats() const { return spec_.block > 1 ? spec_.dim : 0; }
  void keep_in(float* fed) { fed_ = fed; }
  void replay(Pass& pass, std::size_t first);

 private:
  struct Scored {
    float score;
    std::uint32_t block;
  };
  struct Buffers {
    float* queries = nullptr;                  // [columns][heads][dim]
    float* keys = nullptr;                     // [columns][dim]: Wk h
    float* rows = nullptr;                     // [threads][dim]
    Scored* scores = nullptr;                  // [threads][blocks of the longest text]
    kvcache::PositionRange* ranges = nullptr;  // [columns][ranges_max()]
    std::size_t* counts = nullptr;             // [columns]
  };
  Buffers place(Arena& arena, const BufferShape& shape) const;
  std::size_t ranges_max() const { return blocks_max() + 1; }
  std::size_t blocks_max() const { return spec_.top_tokens / spec_.block; }
  std::size_t blocks_of(const BufferShape& shape) const;

  FedPart fed_part() const { return {buffers_.keys, spec_.dim, spec_.dim}; }
  void keep_tail(Pass& pass) const;
  const float* key_before(const LayerState& state, const Stretch& stretch, std::size_t i,
                          std::size_t distance, std::uint32_t position) const;
  void store_block(Pass& pass, const Stretch& stretch, std::size_t i, float* row) const;
  void choose(Pass& pass, std::size_t column, std::size_t member) const;
  float score(const float* queries, const float* key) const;

  SparseIndexSpec spec_;
  Rope rope_;  // of blocks, whose positions may lie before the step
  std::size_t cache_layer_;
  Matrix query_, key_;            // [heads dim][E], [dim][E]
  Vector query_norm_, key_norm_;  // [dim]
  std::size_t blocks_ = 0;        // for which there is room in `scores`
  Buffers buffers_;
  float* fed_ = nullptr;  // [kept columns][dim]
};

}  // namespace sluice::model
