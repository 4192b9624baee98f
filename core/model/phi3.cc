// Phi-3, 3.5 and 4 (Microsoft 2024, arXiv:2404.14219): Llama with fused projections, and rotation
// of a part of each head, stretched by factors of its pairs (LongRoPE, Ding et al. 2024,
// arXiv:2402.13753): one set for contexts up to the original one, another for longer ones. Windows
// that files name were not used in training beyond the first models, and are not used here.
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_phi3(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  const RopeParameters rope = read_rope(keys, hp, heads.front().key_dim);
  const std::size_t pairs = rope.dimensions / 2;
  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  attention.rope = decoder->add_rope(
      {.parameters = rope,
       .pairing = RopePairing::neox,
       .factors = layout.optional_vector("rope_factors_short.weight", {pairs}),
       .long_factors = layout.optional_vector("rope_factors_long.weight", {pairs})});

  keys.leave_aside("attention.sliding_window");

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    decoder->add({.norm = tensors.vector("ffn_norm.weight", {e}),
                  .block = std::make_unique<FeedForward>(tensors, FeedForwardSpec{e, width[i]})});
  }
  return decoder;
}

}  // namespace sluice::model
