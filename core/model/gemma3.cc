// Gemma 3 (Google 2025, arXiv:2503.19786): Gemma 2 with norms of queries and keys in place of the
// cap on scores, and five layers with a window, whose positions rotate faster, to one without.
#include <cmath>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gemma3(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys, 1e-6f);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::uint32_t window = keys.count_or("attention.sliding_window", 1024, context_max);
  const std::vector<bool> slides = keys.layer_pattern(
      "attention.sliding_window_pattern", hp.layers, 6,
      [](std::size_t layer, std::uint32_t period) { return (layer + 1) % period != 0; });
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(
      hp, layout,
      DecoderOptions{.embedding_scale = std::sqrt(static_cast<float>(e)),
                     .logit_softcap = keys.number_or("final_logit_softcapping", 0)});

  RopeParameters full = read_rope(keys, hp, heads.front().key_dim);
  full.base = keys.positive_or("rope.freq_base", keys.positive_or("rope.global.freq_base", 1e6f));
  const RopeParameters local{
      .dimensions = full.dimensions,
      .base =
          keys.positive_or("rope.freq_base_swa", keys.positive_or("rope.local.freq_base", 1e4f))};
  const RotaryTable* full_rope =
      decoder->add_rope({.parameters = full, .pairing = RopePairing::neox});
  const RotaryTable* local_rope =
      decoder->add_rope({.parameters = local, .pairing = RopePairing::neox});

  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .head_norm = HeadNorm::each_head};
  // The 27B model, of 62 layers, derives the scale from embedding / heads instead of the head size.
  if (hp.layers == 62) {
    attention.scale = 1 / std::sqrt(static_cast<float>(e) / static_cast<float>(heads[0].query));
  }
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    attention.window = slides[i] ? window : 0;
    attention.rope = slides[i] ? local_rope : full_rope;
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
