// Gemma 2 (Google 2024, arXiv:2408.00118): norms before and after each block, a window in every
// other layer, and scores and logits that are capped softly.
//
//   x = sqrt(E) embedding
//   x += rms_norm(attention(rms_norm(x)))
//   x += rms_norm(geglu_ffn(rms_norm(x)))
//
// The files store the weights of norms with the paper's 1 already added.
#include <cmath>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gemma2(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys, 1e-6f);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::uint32_t window = keys.whole_or("attention.sliding_window", 4096, context_max);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(
      hp, layout,
      DecoderOptions{.embedding_scale = std::sqrt(static_cast<float>(e)),
                     .logit_softcap = keys.positive_or("final_logit_softcapping", 30)});

  AttentionSpec attention{.embedding = e,
                          .norm_epsilon = hp.norm_epsilon,
                          .softcap = keys.positive_or("attn_logit_softcapping", 50)};
  attention.rope = decoder->add_rope(
      {.parameters = read_rope(keys, hp, heads.front().key_dim), .pairing = RopePairing::neox});
  // The 27B model, of 46 layers, derives the scale from embedding / heads instead of the head size.
  if (hp.layers == 46) {
    attention.scale = 1 / std::sqrt(static_cast<float>(e) / static_cast<float>(heads[0].query));
  }
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    attention.window = i % 2 == 0 ? window : 0;
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention),
                  .post_norm = tensors.vector("post_attention_norm.weight", {e})});
    decoder->add({.norm = tensors.vector("ffn_norm.weight", {e}),
                  .block = std::make_unique<FeedForward>(
                      tensors, FeedForwardSpec{e, width[i], Activation::geglu}),
                  .post_norm = tensors.vector("post_ffw_norm.weight", {e})});
  }
  return decoder;
}

}  // namespace sluice::model
