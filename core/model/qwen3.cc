// Qwen 3 (Qwen Team 2025, arXiv:2505.09388): Llama with a norm of each head of queries and keys,
// and halves of a head that rotate together; dense, or a mixture of experts (qwen3moe).
#include "core/model/blocks/attention.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_qwen3(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const FeedForwards feed_forwards(keys, hp);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .head_norm = HeadNorm::each_head};
  attention.rope = decoder->add_rope(
      {.parameters = read_rope(keys, hp, heads.front().key_dim), .pairing = RopePairing::neox});

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
