// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys and values of all heads
// are made from one short vector for each token, so only that vector is kept.
//
// With x the input, R its latent size, and rope() the rotation of the token's position:
//
//   q_h = [n_h | r_h]         rows of Wq x, or of Wqb rms_norm(Wqa x)
//   c | r = Wkv x             c = rms_norm(c), R elements; r = rope(r), shared by all heads
//   score_h(p) = scale * (n_h . Wk_h c_p + rope(r_h) . r_p)
//   out = Wo [Wv_1 o_1 ... Wv_H o_H],  o_h = sum over p of softmax_p(score_h(p)) c_p
//
// n_h . Wk_h c_p is computed as (Wk_h^T n_h) . c_p. So the cache holds one key [c | r] for each
// position, whose first R elements are the value too, and attention is that of H queries over one
// head of keys.
#pragma once

#include <cstddef>
#include <vector>

#include "core/model/blocks/block.h"
#include "core/model/blocks/cached_attention.h"
#include "core/model/decoder.h"
#include "core/model/hyper_parameters.h"
#include "core/model/keys.h"
#include "core/model/rotary_table.h"
#include "core/model/weights.h"

namespace sluice::model {

struct LatentAttentionSpec {
  std::size_t embedding = 0;   // E
  std::size_t heads = 0;       // H
  std::size_t query_rank = 0;  // of Wqa; 0: queries are projected in one step
  std::size_t latent = 0;      // R, a multiple of kvcache::latent_unit
  std::size_t plain = 0;       // N, elements of a query that are not rotated
  std::size_t rotated = 0;     // T
  std::size_t value = 0;       // V, elements of Wv_h o_h
  float norm_epsilon = 0;
  const RotaryTable* rope = nullptr;  // null: nothing is rotated (Kimi Linear)
  float scale = 0;                    // of scores
  bool has_gate = false;  // what comes out of a head is multiplied by sigmoid(attn_gate x) (Ling 3)
  QueryTemperature temperature = {};
};

// Reads "attention.*" and "rope.dimension_count"; the rotation, the scale and the gate are for the
// page. `query_latents`: the rows of attn_q_a, whose number not all files say; 0 where there is
// none. Throws ModelError.
LatentAttentionSpec read_latent_attention(const Keys& keys, const HyperParameters& hp,
                                          std::uint64_t query_latents);

class LatentAttention final : public Block {
 public:
  // Declares the tensors attn_q, or attn_q_a, attn_q_a_norm and attn_q_b; attn_kv_a_mqa,
  // attn_kv_a_norm and attn_output; and attn_k_b and attn_v_b, which hold Wk^T and Wv of all heads,
  // or attn_kv_b, which holds the rows of Wk_h and of Wv_h below each other, head after head.
  // Throws ModelError.
  LatentAttention(Decoder& decoder, const LayerTensors& tensors, const LatentAttentionSpec& spec);

  std::size_t size_max() const override;
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;
  void store(Pass& pass, const float* in) override;

 private:
  // All are [columns][...].
  struct Buffers {
    float* query_latents = nullptr;  // [query_rank]; unused without
    float* rows = nullptr;           // [R + T]: what the cache gets
    float* heads = nullptr;          // [H][N + T] queries as projected, then [H][V] outputs
    float* queries = nullptr;        // [H][R + T]: as the cache sees them
    float* sink_queries = nullptr;   // the same for the sinks; only for a window that moves them
    float* mixed = nullptr;          // [H][R]
    float* gates = nullptr;          // [H]
  };

  void declare_queries(const LayerTensors& tensors);
  void declare_heads(const LayerTensors& tensors);
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void project(Pass& pass, const float* in);
  void absorb_keys(Pass& pass);
  void finish_queries(Pass& pass, std::size_t c) const;
  void store_row(Pass& pass, std::size_t c) const;
  void apply_gates(Pass& pass, std::size_t c) const;

  std::size_t query_size() const { return spec_.plain + spec_.rotated; }
  std::size_t row_size() const { return spec_.latent + spec_.rotated; }

  LatentAttentionSpec spec_;
  CachedAttention attention_;
  std::size_t cache_layer_ = 0;
  Matrix q_;                     // [H (N + T)][E], or of query latents [query_rank]
  Matrix query_latent_;          // [query_rank][E]; no rows without
  Vector query_norm_;            // [query_rank], or empty
  Matrix kv_;                    // [R + T][E]
  Vector kv_norm_;               // [R]
  std::vector<Matrix> keys_;     // of each head [R][N]; where are_keys_plain_ [N][R]
  bool are_keys_plain_ = false;  // as attn_kv_b has them
  std::vector<Matrix> values_;   // of each head [V][R]
  Matrix gate_;                  // [H][E], or no rows
  Matrix output_;                // [E][H V]
  Buffers buffers_;
  std::vector<Product> products_;  // one of each head
};

}  // namespace sluice::model
