// Kimi Linear (Moonshot AI 2025, arXiv:2510.26692): Kimi delta attention in most layers and latent
// attention without any rotation in those that have heads of keys; mixtures of experts after some
// dense layers, with one expert that all tokens share.
//
// Ling 3.0 (inclusionAI 2026; bailingmoe3) bounds the decays, rotates in latent attention, which
// has a gate of each head, chooses experts by groups, and limits SwiGLU in some layers.
//
//   x += mixer(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or shared_expert(rms_norm(x)) + the sum of experts(rms_norm(x))
#include <cmath>
#include <fmt/format.h>

#include "core/model/blocks/kimi_delta.h"
#include "core/model/blocks/latent_attention.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {
namespace {

// Some files have latents of queries and do not say it.
std::uint64_t query_latents(const WeightLayout& layout,
                            const std::vector<std::uint32_t>& kv_heads) {
  for (std::size_t i = 0; i < kv_heads.size(); ++i) {
    if (kv_heads[i] != 0) return layout.rows(fmt::format("blk.{}.attn_q_a.weight", i));
  }
  return 0;
}

std::unique_ptr<Decoder> make_layers(const Keys& keys, WeightLayout& layout, bool is_ling) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<std::uint32_t> kv_heads =
      keys.per_layer("attention.head_count_kv", hp.blocks());
  const FeedForwards feed_forwards(
      keys, hp,
      {.router = {.scores = RouterScores::sigmoid,
                  .divides_by_sum = keys.flag_or("expert_weights_norm", true)},
       .numbers = swiglu_limits(keys, hp.blocks())});
  auto decoder = std::make_unique<Decoder>(hp, layout);

  LatentAttentionSpec latent = read_latent_attention(keys, hp, query_latents(layout, kv_heads));
  const auto query_size = static_cast<std::uint32_t>(latent.plain + latent.rotated);
  latent.scale = 1 / std::sqrt(static_cast<float>(query_size));
  if (is_ling) {
    latent.has_gate = true;
    latent.rope = decoder->add_rope({.parameters = read_rope(keys, hp, query_size)});
  } else {
    keys.leave_aside("rope.");
  }
  const KimiDeltaSpec delta = read_kimi_delta(keys, hp.embedding, hp.norm_epsilon);

  for (std::uint32_t i = 0; i < (is_ling ? hp.blocks() : hp.layers); ++i) {
    if (i == hp.layers) {
      decoder->begin_predictor();
      if (kv_heads[i] == 0) {
        throw keys.error("attention.head_count_kv",
                         "has no heads for the block that predicts tokens");
      }
    }
    const LayerTensors tensors(layout, i);
    Residual mixer{.norm = read_norm(tensors, hp, "attn_norm.weight")};
    if (kv_heads[i] != 0) {
      mixer.block = std::make_unique<LatentAttention>(*decoder, tensors, latent);
    } else {
      mixer.block = std::make_unique<KimiDelta>(*decoder, tensors, delta);
    }
    decoder->add(std::move(mixer));
    decoder->add(feed_forwards.residual(tensors, i, read_norm(tensors, hp, "ffn_norm.weight")));
  }
  return decoder;
}

}  // namespace

std::unique_ptr<Decoder> make_kimi_linear(const Keys& keys, WeightLayout& layout) {
  return make_layers(keys, layout, false);
}

std::unique_ptr<Decoder> make_bailingmoe3(const Keys& keys, WeightLayout& layout) {
  keys.number("kda.gate_lower_bound");
  return make_layers(keys, layout, true);
}

}  // namespace sluice::model
