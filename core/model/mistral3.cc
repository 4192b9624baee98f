// Ministral 3, Devstral 2 and the text parts of Mistral Small 3 (Mistral AI 2025): Llama with YaRN,
// and queries that grow with the logarithm of their position (Llama 4's temperature).
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_mistral3(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  const RopeParameters rope = read_rope(keys, hp, heads.front().key_dim);
  attention.rope = decoder->add_rope({.parameters = rope});
  attention.temperature = read_query_temperature(keys, rope);

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
