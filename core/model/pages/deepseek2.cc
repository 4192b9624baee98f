// DeepSeek V2 and V3 (DeepSeek-AI 2024, arXiv:2405.04434 and arXiv:2412.19437), GLM-4.7-Flash,
// Moonlight, Kimi K2 and Mistral Small 4 (mistral4): multi-head latent attention, and mixtures of
// experts after some dense layers.
//
//   x += latent_attention(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or shared_expert(rms_norm(x)) + the sum of experts(rms_norm(x))
#include <cmath>
#include <fmt/format.h>
#include <string>

#include "core/model/blocks/latent_attention.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {
namespace {

// YaRN makes the scores of longer contexts larger, through their scale. The files have 0.1 times
// what DeepSeek's configurations call mscale_all_dim as "yarn_log_multiplier".
float yarn_scale(const RopeParameters& rope) {
  if (rope.scaling != RopeScaling::yarn) return 1;
  const float magnitude = 1 + rope.yarn_log_multiplier * std::log(rope.factor);
  return magnitude * magnitude;
}

// Older files do not say which scores the router has; those with a bias for the choice are
// sigmoids.
RouterSpec router_defaults(const Keys& keys, const WeightLayout& layout,
                           const HyperParameters& hp) {
  const std::string last = fmt::format("blk.{}.exp_probs_b.bias", hp.layers - 1);
  return {.scores = layout.has(last) ? RouterScores::sigmoid : RouterScores::softmax,
          .divides_by_sum = keys.flag_or("expert_weights_norm", false)};
}

}  // namespace

std::unique_ptr<Decoder> make_deepseek2(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const FeedForwards feed_forwards(keys, hp, {.router = router_defaults(keys, layout, hp)});
  auto decoder = std::make_unique<Decoder>(hp, layout);

  LatentAttentionSpec attention =
      read_latent_attention(keys, hp, layout.rows("blk.0.attn_q_a.weight"));
  const auto query_size = static_cast<std::uint32_t>(attention.plain + attention.rotated);
  RopeParameters rope = read_rope(keys, hp, query_size);
  attention.scale = yarn_scale(rope) / std::sqrt(static_cast<float>(query_size));
  attention.temperature = read_query_temperature(keys, rope);
  rope.yarn_log_multiplier = 1;  // leaves the magnitude of cosines and sines at 1
  attention.rope = decoder->add_rope({.parameters = rope, .pairing = RopePairing::norm});

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    decoder->add({.norm = read_norm(tensors, hp, "attn_norm.weight"),
                  .block = std::make_unique<LatentAttention>(*decoder, tensors, attention)});
    decoder->add(feed_forwards.residual(tensors, i, read_norm(tensors, hp, "ffn_norm.weight")));
  }
  return decoder;
}

}  // namespace sluice::model
