// Llama and what is built like it: Llama 2 and 3, Mistral 7B, Yi, EuroLLM, Falcon 3 (Touvron et al.
// 2023, arXiv:2307.09288); and Mixtral, a mixture of experts (Jiang et al. 2024, arXiv:2401.04088).
//
//   x += attention(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or the sum of experts
#include "core/model/blocks/attention.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_llama(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const FeedForwards feed_forwards(keys, hp);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  const RopeParameters rope = read_rope(keys, hp, heads.front().key_dim);
  attention.rope = decoder->add_rope(
      {.parameters = rope,
       .factors = layout.optional_vector("rope_freqs.weight", {rope.dimensions / 2})});

  // The window of the first Mistral, which its text does not need.
  keys.leave_aside("attention.sliding_window");

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    decoder->add(feed_forwards.residual(tensors, i, tensors.vector("ffn_norm.weight", {e})));
  }
  return decoder;
}

}  // namespace sluice::model
