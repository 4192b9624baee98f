#include "core/model/transformer.h"

#include <utility>

#include "base/check.h"

namespace sluice::model {

Transformer::Transformer(const Keys& file_keys, WeightLayout& tensors, const ModelKind& kind)
    : keys(file_keys),
      layout(tensors),
      hp(read_hyper_parameters(keys, kind)),
      heads(read_heads(keys, hp)),
      slides(hp.layers, false) {
  attention.embedding = hp.embedding;
  attention.norm_epsilon = hp.norm_epsilon;
  attention.sees_whole_text = hp.is_encoder;
}

void Transformer::rotate(RopePairing pairing) {
  rope =
      RotarySpec{.parameters = read_rope(keys, hp, first_heads(heads).key_dim), .pairing = pairing};
}

void Transformer::read_windows(std::uint32_t period, FullLayer full, std::uint32_t otherwise) {
  window = keys.whole_or("attention.sliding_window", otherwise, context_max);
  slides = keys.layer_pattern("attention.sliding_window_pattern", hp.layers, period,
                              [full](std::size_t layer, std::uint32_t each) {
                                const bool is_last = full == FullLayer::last_of_period;
                                return (is_last ? layer + 1 : layer) % each != 0;
                              });
  if (window == 0) slides.assign(hp.layers, false);
}

void Transformer::rotate_windows(float base) {
  window_rope = RotarySpec{.parameters = {.dimensions = rope->parameters.dimensions, .base = base},
                           .pairing = rope->pairing};
}

std::unique_ptr<Decoder> Transformer::make() {
  const FeedForwards parts(keys, hp, feed_forwards);
  auto decoder = std::make_unique<Decoder>(hp, layout, options);
  const RotaryTable* full_table = rope ? decoder->add_rope(*rope) : nullptr;
  const RotaryTable* window_table =
      window != 0 && window_rope ? decoder->add_rope(*window_rope) : full_table;
  if (only_windows_rotate && window != 0) full_table = nullptr;
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    add_layer(*decoder, parts, i, slides[i] ? window_table : full_table, slides[i]);
  }
  if (can_predict && hp.predictors != 0) {
    decoder->begin_predictor();
    add_layer(*decoder, parts, hp.layers, full_table, false);
  }
  return decoder;
}

void Transformer::add_layer(Decoder& decoder, const FeedForwards& parts, std::uint32_t layer,
                            const RotaryTable* rope_table, bool is_sliding) const {
  const LayerTensors tensors(layout, layer);
  AttentionSpec spec = attention;
  spec.heads = heads[layer];
  spec.window = is_sliding ? window : 0;
  spec.rope = rope_table;
  if (change_layer) change_layer(layer, spec);
  Residual mixing = mixer(decoder, tensors, layer, spec);
  // Some predictors came without a feed-forward part.
  if (layer == hp.layers && !parts.has(tensors)) {
    tensors.leave_aside(norms.feed_forward);
    return decoder.add(std::move(mixing));
  }
  Residual feeding = feed_forward(parts, tensors, layer);
  if (is_parallel) {
    base::check(!mixing.beside && !feeding.beside,
                "a layer of parallel parts has room for two of them");
    mixing.beside = std::exchange(mixing.block, std::move(feeding.block));
    decoder.add(std::move(mixing));
  } else {
    decoder.add(std::move(mixing));
    decoder.add(std::move(feeding));
  }
}

Residual Transformer::mixer(Decoder& decoder, const LayerTensors& tensors, std::uint32_t layer,
                            const AttentionSpec& spec) const {
  Residual out{.scale = residual_scale};
  if (layer != 0 || !first_is_bare) out.norm = norm(tensors, norms.attention);
  const auto make_attention = [&] { return std::make_unique<Attention>(decoder, tensors, spec); };
  out.keeps_input = feed_forwards.routes_kept;
  if (mixes_beside_attention) out.beside = make_attention();
  if (make_mixer) out.block = make_mixer(decoder, tensors, layer);
  if (!out.block) out.block = make_attention();
  out.post_norm = post_norm(tensors, norms.after_attention);
  out.sum_norm = norm(tensors, norms.of_attention_sum);
  const char* const second = norms.of_second_attention_sum;
  if (second != nullptr && tensors.has(second)) {
    out.second_sum_norm = norm(tensors, second);
    out.keeps_input = true;
  }
  return out;
}

Residual Transformer::feed_forward(const FeedForwards& parts, const LayerTensors& tensors,
                                   std::uint32_t layer) const {
  Residual out = parts.residual(tensors, layer, norm(tensors, norms.feed_forward));
  // Without a norm, the experts would see what the shared expert has added.
  if (out.beside && out.norm.empty()) {
    throw tensors.error("ffn_up_shexp.weight",
                        "is of a shared expert, which this architecture cannot have: its layers "
                        "have no norm in front of the experts");
  }
  out.post_norm = post_norm(tensors, norms.after_feed_forward);
  out.sum_norm = norm(tensors, norms.of_feed_forward_sum);
  out.scale = residual_scale;
  return out;
}

Norm Transformer::norm(const LayerTensors& tensors, const char* name) const {
  return name == nullptr ? Norm{} : read_norm(tensors, hp, name);
}

Norm Transformer::post_norm(const LayerTensors& tensors, const char* name) const {
  Norm out = norm(tensors, name);
  out.epsilon = post_norm_epsilon.value_or(out.epsilon);
  return out;
}

RouterSpec sigmoid_router(const Keys& keys) {
  return {.scores = RouterScores::sigmoid,
          .divides_by_sum = keys.flag_or("expert_weights_norm", false)};
}

void use_own_magnitude(const Keys& keys, RopeParameters& rope) {
  rope.attention_factor = keys.number_or("rope.scaling.attn_factor", 1);
}

Vector read_rope_factors(WeightLayout& layout, const RopeParameters& rope) {
  return layout.optional_vector("rope_freqs.weight", {rope.dimensions / 2});
}

void read_longrope_factors(WeightLayout& layout, RotarySpec& rope) {
  const std::size_t pairs = rope.parameters.dimensions / 2;
  rope.factors = layout.optional_vector("rope_factors_short.weight", {pairs});
  rope.long_factors = layout.optional_vector("rope_factors_long.weight", {pairs});
}

}  // namespace sluice::model
