// Gemma 3 (Google 2025, arXiv:2503.19786): Gemma 2 with norms of queries and keys in place of the
// cap on scores, and five layers with a window, whose positions rotate faster, to one without.
// Files that name no window are of models that have none in any layer (Rnj-1, Essential AI 2025).
#include <cmath>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gemma3(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys, 1e-6f);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::uint32_t window = keys.whole_or("attention.sliding_window", 0, context_max);
  const std::vector<bool> slides = keys.layer_pattern(
      "attention.sliding_window_pattern", hp.layers, 6,
      [](std::size_t layer, std::uint32_t period) { return (layer + 1) % period != 0; });
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(
      hp, layout,
      DecoderOptions{.embedding_scale = std::sqrt(static_cast<float>(e)),
                     .logit_softcap = keys.number_or("final_logit_softcapping", 0)});

  RopeParameters full = read_rope(keys, hp, heads.front().key_dim);
  if (window != 0) {
    full.base = keys.positive_or("rope.freq_base", keys.positive_or("rope.global.freq_base", 1e6f));
  }
  const RopeParameters local{
      .dimensions = full.dimensions,
      .base =
          keys.positive_or("rope.freq_base_swa", keys.positive_or("rope.local.freq_base", 1e4f))};
  const RotaryTable* full_rope =
      decoder->add_rope({.parameters = full, .pairing = RopePairing::neox});
  const RotaryTable* local_rope =
      window == 0 ? nullptr
                  : decoder->add_rope({.parameters = local, .pairing = RopePairing::neox});

  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .head_norm = HeadNorm::each_head};
  // The 27B model, of 62 layers, derives the scale from embedding / heads instead of the head size.
  if (hp.layers == 62) {
    attention.scale = 1 / std::sqrt(static_cast<float>(e) / static_cast<float>(heads[0].query));
  }
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    const bool has_window = window != 0 && slides[i];
    attention.window = has_window ? window : 0;
    attention.rope = has_window ? local_rope : full_rope;
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
