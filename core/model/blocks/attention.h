// Causal attention over the cached keys and values of a sequence: queries, keys and values are
// projected, normalised and rotated as the Spec says, and the output is projected back.
//
// Grouped queries: Ainslie et al. 2023. Each head h of a token at position t gives
//   out_h = sum over the positions p that t sees of softmax_p(score(q_h, k_p)) v_p,
//   score = softcap(scale * q . k)
// and the block gives Wo [out_1 ... out_H] (+ bias).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model/blocks/block.h"
#include "core/model/blocks/cached_attention.h"
#include "core/model/decoder.h"
#include "core/model/hyper_parameters.h"
#include "core/model/rotary_table.h"
#include "core/model/weights.h"

namespace sluice::model {

// What the root mean square norms of queries and keys are computed over.
enum class HeadNorm {
  none,
  each_head,  // [key_dim], one weight for all heads (Qwen 3)
  all_heads,  // [heads * key_dim] (OLMo 2)
};

class Attention;

struct AttentionSpec {
  std::size_t embedding = 0;  // E
  Heads heads = {};
  float norm_epsilon = 0;
  const RotaryTable* rope = nullptr;  // null: queries and keys are not rotated
  std::uint32_t window = 0;           // positions that a token sees, itself included; 0: all
  float scale = 0;                    // of scores; 0: 1 / sqrt(key_dim)
  float softcap = 0;                  // of scores; 0: none
  HeadNorm head_norm = HeadNorm::none;
  // Values are normalised too, each head, without weights (Gemma 4).
  bool normalises_values = false;
  // Without attn_v the values are the keys before norm and rotation (Gemma 4).
  bool keys_may_be_values = false;
  // The projection of queries holds a gate beside each head, [q_h | gate_h]; what comes out of a
  // head is multiplied by the sigmoid of its gate (Qwen 3.5).
  bool is_gated = false;
  // Each head has a learned number that joins its scores and has no value (gpt-oss).
  bool has_sink_logits = false;
  // The earlier block whose keys and values this one reads, and whose sizes of heads of these it
  // has therefore; null: its own.
  const Attention* shares_with = nullptr;
  QueryTemperature temperature = {};
};

class Attention final : public Block {
 public:
  // Declares the tensors attn_q, attn_k and attn_v, or attn_qkv for all three; attn_output; and,
  // where the file has them, the bias of each, attn_q_norm, attn_k_norm and attn_sinks. Throws
  // ModelError.
  Attention(Decoder& decoder, const LayerTensors& tensors, const AttentionSpec& spec);

  const Heads& heads() const { return spec_.heads; }

  std::size_t size_max() const override { return std::max(spec_.embedding, attention_size()); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  // All are [columns][...].
  struct Buffers {
    float* queries = nullptr;    // [H D], or with gates as projected: [H][query (D), gate (D)]
    float* q = nullptr;          // [H D]: the queries without gates
    float* gates = nullptr;      // [H D]
    float* k = nullptr;          // [G D]
    float* v = nullptr;          // [G Dv]
    float* attention = nullptr;  // [H Dv]
    float* sink_q = nullptr;     // q rotated for the sinks; only for a window that moves them
  };

  void declare_projections(const LayerTensors& tensors);
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void project(Pass& pass, const float* in);
  void prepare_column(Pass& pass, std::size_t c) const;
  void prepare_queries(Pass& pass, std::size_t c) const;
  void store_keys(Pass& pass, std::size_t c) const;
  void normalise_heads(const kernels::VectorOps& ops, float* data, std::size_t heads,
                       Vector weight) const;
  void apply_gates(Pass& pass) const;
  bool owns_keys() const { return spec_.shares_with == nullptr; }

  // Computed with 64 bits: the numbers come from the file, and before the tensors have been checked
  // their products may exceed 32 bits.
  std::size_t q_size() const { return std::size_t{spec_.heads.query} * spec_.heads.key_dim; }
  std::size_t k_size() const { return std::size_t{spec_.heads.kv} * spec_.heads.key_dim; }
  std::size_t v_size() const { return std::size_t{spec_.heads.kv} * spec_.heads.value_dim; }
  std::size_t attention_size() const {
    return std::size_t{spec_.heads.query} * spec_.heads.value_dim;
  }

  AttentionSpec spec_;
  std::size_t cache_layer_;
  CachedAttention reader_;
  Matrix q_;       // [H D][E], twice the rows with gates
  Matrix k_, v_;   // [G D][E], [G Dv][E]; v_ has no rows where keys are values
  Matrix output_;  // [E][H Dv]
  Vector q_bias_, k_bias_, v_bias_, output_bias_;  // empty in most models
  Vector q_norm_, k_norm_;                         // empty without norms
  Vector sink_logits_;                             // [H], or empty
  Buffers buffers_;
};

}  // namespace sluice::model
