// BERT (Devlin et al. 2018, arXiv:1810.04805) and the encoders that are built like it: norms stand
// behind the sums, and the stream is normalised once before the layers.
//
//   x = norm(token + type + position)
//   x = norm(x + attention(x))
//   x = norm(x + ffn(x))
//
// They differ in how positions are told, and in the feed-forward network:
// - bert (MiniLM, BGE, E5, RoBERTa): a table; GELU.
// - nomic-bert (Nussbaum et al. 2024, arXiv:2402.01613): rotation; SwiGLU. nomic-bert-moe: GELU,
//   and experts in every second layer, whose weights are not divided by their sum.
// - jina-bert-v2 (Guenther et al. 2023, arXiv:2310.19923): ALiBi; GeGLU. Its code variant has norms
//   of queries and keys, and adds the stream to the output of attention twice.
// - jina-bert-v3: rotation; GELU.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {
namespace {

Transformer make_encoder(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.subtracts_mean = true, .is_encoder = true});
  model.norms = sum_norms;
  model.options = {.embedding_norm = "token_embd_norm.weight", .final_norm = nullptr};
  model.feed_forwards.activation = Activation::gelu;
  return model;
}

}  // namespace

std::unique_ptr<Decoder> make_bert(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_encoder(keys, layout);
  model.options.has_position_table = true;
  return model.make();
}

std::unique_ptr<Decoder> make_nomic_bert(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_encoder(keys, layout);
  model.rotate(RopePairing::neox);
  if (layout.has("blk.0.ffn_gate.weight")) model.feed_forwards.activation = Activation::swiglu;
  model.feed_forwards.some_are_dense = keys.whole_or("moe_every_n_layers", 0) != 0;
  model.feed_forwards.router.divides_by_sum = false;
  return model.make();
}

std::unique_ptr<Decoder> make_jina_bert_v2(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_encoder(keys, layout);
  model.attention.has_alibi = true;
  if (layout.has("blk.0.attn_q_norm.weight")) model.attention.head_norm = HeadNorm::mean_of_all;
  const std::uint32_t width = keys.per_layer("feed_forward_length", model.hp.layers).front();
  const bool holds_gate = LayerTensors(layout, 0).rows("ffn_up.weight") == 2 * std::uint64_t{width};
  if (holds_gate || layout.has("blk.0.ffn_gate.weight")) {
    model.feed_forwards.activation = Activation::geglu;
  }
  return model.make();
}

}  // namespace sluice::model
