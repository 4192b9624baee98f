// Nemotron-H, Nemotron Nano 2 and 3 (NVIDIA 2025, arXiv:2504.03624): each layer is one block,
// x += block(rms_norm(x)): a feed-forward network with squared ReLU where the file gives it a
// width, attention without positions where it has heads of keys, else Mamba-2. The networks of some
// are mixtures of experts, with one that all tokens share (nemotron_h_moe).
#include "core/model/blocks/attention.h"
#include "core/model/blocks/mamba2.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_nemotron_h(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const RouterSpec router{.scores = RouterScores::sigmoid,
                          .divides_by_sum = keys.flag_or("expert_weights_norm", true)};
  const FeedForwards feed_forwards(keys, hp,
                                   {.activation = Activation::relu_squared, .router = router});
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  const Mamba2Spec mamba2 = read_mamba2(keys, e, hp.norm_epsilon);
  AttentionSpec attention{.embedding = e,
                          .norm_epsilon = hp.norm_epsilon,
                          .scale = keys.number_or("attention.scale", 0)};

  keys.leave_aside("rope.");
  keys.leave_aside("attention.layer_norm_epsilon");

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    const Norm norm = read_norm(tensors, hp, "attn_norm.weight");
    attention.heads = heads[i];
    if (feed_forwards.width(i) != 0) {
      decoder->add(feed_forwards.residual(tensors, i, norm));
    } else if (heads[i].query != 0) {
      decoder->add(
          {.norm = norm, .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    } else {
      decoder->add({.norm = norm, .block = std::make_unique<Mamba2>(*decoder, tensors, mamba2)});
    }
  }
  return decoder;
}

}  // namespace sluice::model
