// Qwen 2 and 2.5 (Qwen Team 2024, arXiv:2407.10671): Llama with biases of queries, keys and values,
// which Attention takes where the file has them, and halves of a head that rotate together.
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_qwen2(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  attention.rope = decoder->add_rope(
      {.parameters = read_rope(keys, hp, heads.front().key_dim), .pairing = RopePairing::neox});

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
