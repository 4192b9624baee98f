// Attention: queries, keys and values are projected, normalised and rotated as the Spec says, and
// the output is projected back. A token of a decoder sees the cached keys and values of its
// sequence, up to its own; one of an encoder sees the whole text.
//
// Grouped queries: Ainslie et al. 2023. Each head h of a token at position t gives
//   out_h = sum over the positions p that t sees of softmax_p(score(q_h, k_p)) v_p,
//   score = softcap(scale * q . k)
// and the block gives Wo [out_1 ... out_H] (+ bias).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/model/blocks/block.h"
#include "core/model/blocks/cached_attention.h"
#include "core/model/blocks/sparse_index.h"
#include "core/model/blocks/whole_text_attention.h"
#include "core/model/decoder.h"
#include "core/model/hyper_parameters.h"
#include "core/model/rotary_table.h"
#include "core/model/weights.h"

namespace sluice::model {

// The norms of queries and keys: of the root mean square, but for the last two.
enum class HeadNorm {
  none,
  bare,          // of each head, without weights (Llama 4)
  each_head,     // of each head, [key_dim]: one weight for all heads (Qwen 3)
  all_heads,     // of all heads together, [heads * key_dim] (OLMo 2)
  own_of_heads,  // of each head, [heads][key_dim], with its mean subtracted (Command R+)
  mean_of_all,   // of all heads together, with their mean subtracted, and biases (Jina code)
};

// What the output of heads is multiplied with.
enum class AttentionGate {
  none,
  // The projection of queries holds a gate beside each head, [q_h | gate_h]; what comes out of a
  // head is multiplied by the sigmoid of its gate (Qwen 3.5).
  beside_queries,
  // A projection of its own, attn_gate, has a number for each head, or for each element: their
  // sigmoid (Step 3.5, Muse Glimmer), or their softplus (Laguna).
  sigmoid,
  softplus,
};

class Attention;

struct AttentionSpec {
  std::size_t embedding = 0;  // E
  Heads heads = {};
  float norm_epsilon = 0;
  const RotaryTable* rope = nullptr;  // null: queries and keys are not rotated
  std::uint32_t window = 0;           // positions that a token sees, itself included; 0: all
  bool has_chunks = false;            // the window is the chunk of so many that the token is in
  float scale = 0;                    // of scores; 0: 1 / sqrt(key_dim)
  float softcap = 0;                  // of scores; 0: none
  HeadNorm head_norm = HeadNorm::none;
  bool normalises_rotated = false;  // the norms stand behind the rotation (Hunyuan)
  // Values are normalised too, each head, without weights (Gemma 4).
  bool normalises_values = false;
  // Without attn_v the values are the keys before norm and rotation (Gemma 4).
  bool keys_may_be_values = false;
  AttentionGate gate = AttentionGate::none;
  // Each head has a learned number that joins its scores and has no value (gpt-oss).
  bool has_sink_logits = false;
  // The earlier block whose keys and values this one reads, and whose sizes of heads of these it
  // has therefore; null: its own.
  const Attention* shares_with = nullptr;
  QueryTemperature temperature = {};
  SparseIndexSpec sparse_index = {};  // with blocks of 0 tokens: none
  // The block of an encoder. A window reaches half of it to either side.
  bool sees_whole_text = false;
  bool has_alibi = false;  // see WholeTextAttentionSpec
};

class Attention final : public Block {
 public:
  // Declares the tensors attn_q, attn_k and attn_v, or attn_qkv for all three; attn_output; those
  // that the Spec asks for: those of SparseIndex, attn_q_norm, attn_k_norm, attn_gate and
  // attn_sinks; and, where the file has them, the biases of the projections. Throws ModelError.
  Attention(Decoder& decoder, const LayerTensors& tensors, const AttentionSpec& spec);

  const Heads& heads() const { return spec_.heads; }

  std::size_t size_max() const override { return std::max(spec_.embedding, attention_size()); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;
  void store(Pass& pass, const float* in) override;
  std::size_t fed_floats() const override { return index_ ? index_->fed_floats() : 0; }
  void keep_in(float* fed) override {
    if (index_) index_->keep_in(fed);
  }
  void replay(Pass& pass, std::size_t first) override {
    if (index_) index_->replay(pass, first);
  }

 private:
  // All are [columns][...].
  struct Buffers {
    float* queries = nullptr;    // [H D], or with gates as projected: [H][query (D), gate (D)]
    float* q = nullptr;          // [H D]: the queries without gates
    float* gates = nullptr;      // [H Dv], or [H]
    float* k = nullptr;          // [G D]
    float* v = nullptr;          // [G Dv]
    float* attention = nullptr;  // [H Dv]
    float* sink_q = nullptr;     // q rotated for the sinks; only for a window that moves them
  };

  void declare_projections(const LayerTensors& tensors);
  void declare_head_norms(const LayerTensors& tensors);
  void declare_gate(const LayerTensors& tensors);
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void project(Pass& pass, const float* in);
  void prepare_column(Pass& pass, std::size_t c) const;
  void prepare_queries(Pass& pass, std::size_t c) const;
  void separate_gates(std::size_t c) const;
  void store_keys(Pass& pass, std::size_t c) const;
  // Where queries and keys are rotated for: the token's own position, or the sinks of a window.
  enum class Place { own, sinks };
  void turn(const kernels::VectorOps& ops, float* data, std::size_t heads, Vector weight,
            Vector bias, std::size_t c, Place place) const;
  void normalise_heads(const kernels::VectorOps& ops, float* data, std::size_t heads, Vector weight,
                       Vector bias) const;
  void apply_gates(Pass& pass) const;
  void apply_gates(const kernels::VectorOps& ops, std::size_t c) const;
  bool has_gate_beside_queries() const { return spec_.gate == AttentionGate::beside_queries; }
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
  std::size_t cache_layer_ = 0;
  std::unique_ptr<SparseIndex> index_;  // null in most models
  CachedAttention reader_;
  WholeTextAttention whole_reader_;  // in its place, where the block sees whole texts
  Matrix q_;                         // [H D][E], twice the rows with gates
  Matrix k_, v_;                     // [G D][E], [G Dv][E]; v_ has no rows where keys are values
  Matrix gate_;                      // [H][E] or [H Dv][E]; no rows without
  Matrix output_;                    // [E][H Dv]
  Vector q_bias_, k_bias_, v_bias_, output_bias_;  // empty in most models
  Vector q_norm_, k_norm_;                         // empty without norms
  Vector q_norm_bias_, k_norm_bias_;               // of HeadNorm::mean_of_all
  Vector sink_logits_;                             // [H], or empty
  Buffers buffers_;
};

}  // namespace sluice::model
