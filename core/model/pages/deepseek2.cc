// DeepSeek V2 and V3 (DeepSeek-AI 2024, arXiv:2405.04434 and arXiv:2412.19437), GLM-4.7-Flash,
// Moonlight, Kimi K2 and Mistral Small 4 (mistral4): multi-head latent attention, and mixtures of
// experts after some dense layers.
//
//   x += latent_attention(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or shared_expert(rms_norm(x)) + the sum of experts(rms_norm(x))
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <string>

#include "core/model/blocks/latent_attention.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"
#include "kvcache/layout.h"

namespace sluice::model {
namespace {

// YaRN makes the scores of longer contexts larger, through their scale. The files have 0.1 times
// what DeepSeek's configurations call mscale_all_dim as "yarn_log_multiplier".
float yarn_scale(const RopeParameters& rope) {
  if (rope.scaling != RopeScaling::yarn) return 1;
  const float magnitude = 1 + rope.yarn_log_multiplier * std::log(rope.factor);
  return magnitude * magnitude;
}

LatentAttentionSpec read_attention(const Keys& keys, const HyperParameters& hp,
                                   const WeightLayout& layout) {
  LatentAttentionSpec spec{.embedding = hp.embedding, .norm_epsilon = hp.norm_epsilon};
  spec.heads = keys.count("attention.head_count");
  const bool has_query_latents = layout.has("blk.0.attn_q_a.weight");
  spec.query_rank = has_query_latents ? keys.count("attention.q_lora_rank") : 0;
  spec.latent = keys.count("attention.kv_lora_rank");
  if (spec.latent % kvcache::latent_unit != 0) {
    throw keys.error("attention.kv_lora_rank", fmt::format("is {}, expected a multiple of {}",
                                                           spec.latent, kvcache::latent_unit));
  }
  // Files for the compressed cache say the sizes of its one head by the usual names.
  keys.leave_aside("attention.head_count_kv");
  const auto size = [&](const std::string& name) {
    const std::optional<std::uint32_t> own = keys.find_count(name + "_mla");
    if (own) keys.leave_aside(name);
    return own ? *own : keys.count(name);
  };
  const std::uint32_t key = size("attention.key_length");
  spec.value = size("attention.value_length");
  spec.rotated = keys.count("rope.dimension_count", key - 1);
  spec.plain = key - spec.rotated;
  return spec;
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

  LatentAttentionSpec attention = read_attention(keys, hp, layout);
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
