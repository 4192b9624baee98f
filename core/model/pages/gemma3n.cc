// Gemma 3n (Google 2025): Gemma 3 with several residual streams, of which layers compute on the
// first (blocks/altup.h), a narrow path beside attention, embeddings that each layer adds anew
// (blocks/per_layer_inputs.h), sparse activations in the first layers, and layers that share the
// keys and values of earlier ones.
//
//   x = sqrt(E) embedding;  each layer, with streams predicted before and corrected after:
//   h = rms_norm(x)
//   x = (x + rms_norm(attention(h)) + h + rms_norm(Wr Wl h)) / sqrt(2)
//   x += rms_norm(geglu_ffn(rms_norm(x)))
#include <array>
#include <cmath>
#include <utility>

#include "core/model/blocks/altup.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"
#include "core/model/key_sharing.h"

namespace sluice::model {
namespace {

constexpr std::array half_root = {0.70710678f};

// How many standard deviations the gates of a layer have to lie above their mean; minus infinity in
// layers without such a limit.
std::vector<float> read_cuts(const Keys& keys, std::size_t layers) {
  const std::string name = "activation_sparsity_scale";
  if (!keys.contains(name)) return std::vector<float>(layers, -INFINITY);
  const gguf::FloatArray array =
      keys.model().metadata().require_floats(keys.architecture() + "." + name);
  if (array.size() < layers) throw keys.error(name, "has fewer elements than there are layers");
  std::vector<float> out;
  for (std::size_t i = 0; i < layers; ++i) {
    out.push_back(array[i]);
    if (std::isfinite(out.back()) || out.back() < 0) continue;
    throw keys.error(name, "has an element that is neither finite nor minus infinity");
  }
  return out;
}

std::size_t read_stream_count(const Keys& keys) {
  const std::uint32_t count = keys.count("altup.num_inputs", Streams::count_max);
  if (count < 2) throw keys.error("altup.num_inputs", "is 1, expected at least 2");
  if (keys.whole_or("altup.active_idx", 0) != 0) {
    throw keys.error("altup.active_idx", "is not 0; layers compute on the first stream");
  }
  return count;
}

std::array<LayerKind, 2> read_layer_kinds(const Keys& keys, const HyperParameters& hp,
                                          const Heads& heads, Decoder& decoder) {
  const RopeParameters full = read_rope(keys, hp, heads.key_dim);
  const RopeParameters local{.dimensions = full.dimensions,
                             .base = keys.positive_or("rope.freq_base_swa", 1e4f)};
  const auto rope = [&](const RopeParameters& parameters) {
    return decoder.add_rope({.parameters = parameters, .pairing = RopePairing::neox});
  };
  return {
      LayerKind{heads, rope(full), 0, nullptr},
      LayerKind{heads, rope(local), keys.count("attention.sliding_window", context_max), nullptr}};
}

}  // namespace

std::unique_ptr<Decoder> make_gemma3n(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys, {.epsilon = 1e-6f});
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> slides =
      keys.per_layer("attention.sliding_window_pattern", hp.layers);
  const std::uint32_t sharing = keys.whole_or("attention.shared_kv_layers", 0);
  const std::vector<float> cuts = read_cuts(keys, hp.layers);
  const FeedForwards feed_forwards(
      keys, hp, {.activation = Activation::geglu, .numbers = [&](std::size_t layer, bool) {
                   ActivationNumbers numbers;
                   if (std::isfinite(cuts[layer])) numbers.cut = cuts[layer];
                   return numbers;
                 }});
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(
      hp, layout,
      DecoderOptions{.embedding_scale = std::sqrt(static_cast<float>(e)),
                     .logit_softcap = keys.number_or("final_logit_softcapping", 30)});
  std::array kinds = read_layer_kinds(keys, hp, first_heads(heads), *decoder);
  auto prologue = std::make_unique<Streams>(
      layout,
      PerLayerInputsSpec{e, keys.count("embedding_length_per_layer_input"), hp.layers,
                         hp.vocabulary, hp.norm_epsilon},
      read_stream_count(keys));
  const Streams& streams = *prologue;
  decoder->set_prologue(std::move(prologue));

  AttentionSpec attention{.embedding = e,
                          .norm_epsilon = hp.norm_epsilon,
                          .scale = 1,
                          .head_norm = HeadNorm::each_head,
                          .normalises_values = true};
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    decoder->add({.block = std::make_unique<StreamPrediction>(tensors, streams, hp.norm_epsilon)});
    LayerKind& kind = kinds[slides[i] != 0 ? 1 : 0];
    attention.heads = heads[i];
    attention.rope = kind.rope;
    attention.window = kind.window;
    const bool shares = i + sharing >= hp.layers;
    attention.shares_with = shares ? shared_block(keys, kind, i, heads[i], sharing) : nullptr;
    auto block = std::make_unique<Attention>(*decoder, tensors, attention);
    if (!shares) kind.last_with_keys = block.get();
    decoder->add({.block = std::make_unique<AttentionAndSidePath>(tensors, e, hp.norm_epsilon,
                                                                  std::move(block)),
                  .stream_scale = half_root});
    Residual feeding =
        feed_forwards.residual(tensors, i, read_norm(tensors, hp, "ffn_norm.weight"));
    feeding.post_norm = read_norm(tensors, hp, "post_ffw_norm.weight");
    decoder->add(std::move(feeding));
    decoder->add(
        {.block = std::make_unique<StreamCorrection>(tensors, streams, i, hp.norm_epsilon)});
  }
  // Their mean.
  static constexpr std::array<float, Streams::count_max + 1> shares_of = {
      0, 1, 1.0f / 2, 1.0f / 3, 1.0f / 4, 1.0f / 5, 1.0f / 6, 1.0f / 7, 1.0f / 8};
  decoder->add({.block = std::make_unique<StreamSum>(layout, streams),
                .stream_scale = Vector(shares_of).subspan(streams.count(), 1)});
  return decoder;
}

}  // namespace sluice::model
