// OLMo 2 and 3 (Ai2 2025, arXiv:2501.00656): norms stand after the blocks and none before, and
// queries and keys are normalised over all heads together.
//
//   x += rms_norm(attention(x))
//   x += rms_norm(swiglu_ffn(x))
//
// OLMo 3 has the same name; it says so with a window, which three of four layers have. Only those
// without are stretched with YaRN, always with its usual ramp (32 and 1).
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_olmo2(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::uint32_t window = keys.whole_or("attention.sliding_window", 0, context_max);
  const std::vector<bool> slides = keys.layer_pattern(
      "attention.sliding_window_pattern", hp.layers, 4,
      [](std::size_t layer, std::uint32_t period) { return (layer + 1) % period != 0; });
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  RopeParameters rope = read_rope(keys, hp, heads.front().key_dim);
  rope.yarn_beta_fast = 32;
  rope.yarn_beta_slow = 1;
  // The factor of the magnitude that converters write as yarn_attn_factor is YaRN's own.
  rope.attention_factor = keys.number_or("rope.scaling.attn_factor", 1);
  RopeParameters plain{.dimensions = rope.dimensions,
                       .base = keys.positive_or("rope.freq_base_swa", rope.base)};
  const RotaryTable* full_rope =
      decoder->add_rope({.parameters = rope, .pairing = RopePairing::neox});
  const RotaryTable* window_rope =
      window == 0 ? nullptr
                  : decoder->add_rope({.parameters = plain, .pairing = RopePairing::neox});

  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .head_norm = HeadNorm::all_heads};
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    const bool has_window = window != 0 && slides[i];
    attention.heads = heads[i];
    attention.window = has_window ? window : 0;
    attention.rope = has_window ? window_rope : full_rope;
    decoder->add({.block = std::make_unique<Attention>(*decoder, tensors, attention),
                  .post_norm = tensors.vector("post_attention_norm.weight", {e})});
    decoder->add({.block = std::make_unique<FeedForward>(tensors, FeedForwardSpec{e, width[i]}),
                  .post_norm = tensors.vector("post_ffw_norm.weight", {e})});
  }
  return decoder;
}

}  // namespace sluice::model
