// SmolLM 3 (Hugging Face 2025): Llama, but every fourth layer does not rotate its queries and keys
// (NoPE, Yang et al. 2025, arXiv:2501.18795). The metadata does not say which; it is always these.
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_smollm3(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  const RotaryTable* rope =
      decoder->add_rope({.parameters = read_rope(keys, hp, heads.front().key_dim)});

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    attention.rope = (i + 1) % 4 == 0 ? nullptr : rope;
    decoder->add({.norm = tensors.vector("attn_norm.weight", {e}),
                  .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    decoder->add({.norm = tensors.vector("ffn_norm.weight", {e}),
                  .block = std::make_unique<FeedForward>(tensors, FeedForwardSpec{e, width[i]})});
  }
  return decoder;
}

}  // namespace sluice::model
