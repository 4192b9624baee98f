// Qwen 3.5 (Qwen Team 2026): gated delta nets in most layers and gated attention in every fourth;
// dense, or a mixture with a gated expert that all tokens share (qwen35moe).
//
//   x += mixer(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or the sum of experts
//
// Rotation in sections (M-RoPE) turns the same pairs by the same angles as plain rotation when all
// tokens are text.
#include "core/model/blocks/attention.h"
#include "core/model/blocks/delta_net.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {
namespace {

// Whether each layer is a delta net. Newer files have a list. In others a layer is a delta net if
// it has no heads, or if the interval of full attention does not fall on it.
std::vector<bool> read_recurrent(const Keys& keys, const std::vector<Heads>& heads) {
  if (keys.contains("attention.recurrent_layers")) {
    std::vector<bool> out;
    for (const std::uint32_t flag : keys.per_layer("attention.recurrent_layers", heads.size())) {
      out.push_back(flag != 0);
    }
    return out;
  }
  const std::uint32_t interval = keys.count_or("full_attention_interval", 4);
  std::vector<bool> out;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    out.push_back(heads[i].query == 0 || (i + 1) % interval != 0);
  }
  return out;
}

}  // namespace

std::unique_ptr<Decoder> make_qwen35(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<bool> is_recurrent = read_recurrent(keys, heads);
  const FeedForwards feed_forwards(keys, hp);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(hp, layout);

  keys.leave_aside("rope.dimension_sections");

  const DeltaNetSpec delta_net = read_delta_net(keys, e, hp.norm_epsilon);
  AttentionSpec attention{.embedding = e,
                          .norm_epsilon = hp.norm_epsilon,
                          .head_norm = HeadNorm::each_head,
                          .is_gated = true};
  attention.rope = decoder->add_rope({.parameters = read_rope(keys, hp, first_heads(heads).key_dim),
                                      .pairing = RopePairing::neox});

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    const Vector norm = tensors.vector("attn_norm.weight", {e});
    attention.heads = heads[i];
    if (is_recurrent[i]) {
      decoder->add(
          {.norm = norm, .block = std::make_unique<DeltaNet>(*decoder, tensors, delta_net)});
    } else {
      decoder->add(
          {.norm = norm, .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    }
    const Vector ffn_norm = tensors.vector("post_attention_norm.weight", {e});
    decoder->add(feed_forwards.residual(tensors, i, ffn_norm));
  }
  return decoder;
}

}  // namespace sluice::model
