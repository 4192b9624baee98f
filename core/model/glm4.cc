// GLM-4-0414, GLM-Z1 and the text part of GLM-4.xV (Zhipu 2025): norms before and after each block.
//
//   x += rms_norm(attention(rms_norm(x)))
//   x += rms_norm(swiglu_ffn(rms_norm(x)))
//
// Half of each head is rotated. Most files pair neighbouring elements; files made for images too
// pair the two halves, which they show by having sections of the rotation.
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_glm4(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  attention.rope =
      decoder->add_rope({.parameters = read_rope(keys, hp, heads.front().key_dim),
                         .pairing = keys.contains("rope.dimension_sections") ? RopePairing::neox
                                                                             : RopePairing::norm});
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention),
                  .post_norm = tensors.vector("post_attention_norm.weight", {e})});
    decoder->add({.norm = tensors.vector("ffn_norm.weight", {e}),
                  .block = std::make_unique<FeedForward>(tensors, FeedForwardSpec{e, width[i]}),
                  .post_norm = tensors.vector("post_ffw_norm.weight", {e})});
  }
  return decoder;
}

}  // namespace sluice::model
