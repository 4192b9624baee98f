// gpt-oss (OpenAI 2025, arXiv:2508.10925): a mixture of experts in every layer; attention in a
// window in every second layer, the first among them, with a learned number of each head that joins
// its scores; biases everywhere.
//
//   x += attention(rms_norm(x))
//   x += the sum of experts(rms_norm(x))
#include "core/model/blocks/attention.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gpt_oss(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const FeedForwards feed_forwards(keys, hp, Activation::clamped_swiglu);
  const std::uint32_t window = keys.count("attention.sliding_window", context_max);
  const std::vector<bool> slides = keys.layer_pattern(
      "attention.sliding_window_pattern", hp.layers, 2,
      [](std::size_t layer, std::uint32_t period) { return (layer + 1) % period != 0; });
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  const RopeParameters full = read_rope(keys, hp, heads.front().key_dim);
  RopeParameters local = full;
  local.base = keys.positive_or("rope.freq_base_swa", full.base);
  const RotaryTable* full_rope =
      decoder->add_rope({.parameters = full, .pairing = RopePairing::neox});
  const RotaryTable* window_rope =
      local == full ? full_rope
                    : decoder->add_rope({.parameters = local, .pairing = RopePairing::neox});

  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon, .has_sink_logits = true};
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    attention.window = slides[i] ? window : 0;
    attention.rope = slides[i] ? window_rope : full_rope;
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    // Despite its name, this norm stands before the experts.
    const Vector ffn_norm = tensors.vector("post_attention_norm.weight", {e});
    decoder->add(feed_forwards.residual(tensors, i, ffn_norm));
  }
  return decoder;
}

}  // namespace sluice::model
