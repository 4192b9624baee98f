// Granite 3 and 4, the dense ones (IBM 2024): Llama with four multipliers (µP, Yang et al. 2022,
// arXiv:2203.03466): of the embeddings, of what a block adds, of scores, and a divisor of logits.
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"
#include "core/model/granite_scales.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_granite(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  const GraniteScales scales = read_granite_scales(keys);
  auto decoder = std::make_unique<Decoder>(hp, layout, scales.decoder_options());

  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .scale = scales.attention};
  if (keys.flag_or("rope.scaling.finetuned", true)) {
    attention.rope = decoder->add_rope({.parameters = read_rope(keys, hp, heads.front().key_dim)});
  } else {
    keys.leave_aside("rope.");
  }

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention),
                  .scale = scales.residual});
    decoder->add({.norm = tensors.vector("ffn_norm.weight", {e}),
                  .block = std::make_unique<FeedForward>(tensors, FeedForwardSpec{e, width[i]}),
                  .scale = scales.residual});
  }
  return decoder;
}

}  // namespace sluice::model
