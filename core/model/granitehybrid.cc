// Granite 4 hybrids and Bamba (IBM 2025): Mamba-2, and attention in the layers that have heads of
// keys, mostly without rotation; with the multipliers of Granite. Some are mixtures of experts,
// with one that all tokens share.
#include <utility>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/mamba2.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"
#include "core/model/granite_scales.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_granitehybrid(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const FeedForwards feed_forwards(keys, hp);
  const std::size_t e = hp.embedding;
  const GraniteScales scales = read_granite_scales(keys);
  auto decoder = std::make_unique<Decoder>(hp, layout, scales.decoder_options());

  const Mamba2Spec mamba2 = read_mamba2(keys, e, hp.norm_epsilon);
  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .scale = scales.attention};
  if (keys.flag_or("rope.scaling.finetuned", true)) {
    attention.rope =
        decoder->add_rope({.parameters = read_rope(keys, hp, first_heads(heads).key_dim)});
  } else {
    keys.leave_aside("rope.");
  }

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    const Vector norm = tensors.vector("attn_norm.weight", {e});
    attention.heads = heads[i];
    if (heads[i].query == 0) {
      decoder->add({.norm = norm,
                    .block = std::make_unique<Mamba2>(*decoder, tensors, mamba2),
                    .scale = scales.residual});
    } else {
      decoder->add({.norm = norm,
                    .block = std::make_unique<Attention>(*decoder, tensors, attention),
                    .scale = scales.residual});
    }
    Residual feed_forward =
        feed_forwards.residual(tensors, i, tensors.vector("ffn_norm.weight", {e}));
    feed_forward.scale = scales.residual;
    decoder->add(std::move(feed_forward));
  }
  return decoder;
}

}  // namespace sluice::model
