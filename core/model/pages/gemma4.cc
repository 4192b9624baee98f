// Gemma 4 (Google 2026): Gemma 3 with heads of two sizes (256 with a window, 512
// without), values that are normalised too, and in the small models layers that share the keys and
// values of earlier ones, and embeddings that each layer adds anew (blocks/per_layer_inputs.h). One
// is a mixture, with a dense network and experts in each layer (blocks/dense_and_experts.h).
//
//   x = sqrt(E) embedding
//   x += rms_norm(attention(rms_norm(x)))
//   x += rms_norm(geglu_ffn(rms_norm(x)))
//   x += rms_norm(per_layer_input(x))
//   x *= a number of the layer
#include <array>
#include <cmath>
#include <utility>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/dense_and_experts.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/blocks/per_layer_inputs.h"
#include "core/model/families.h"
#include "core/model/key_sharing.h"

namespace sluice::model {
namespace {

// A dense network; in a mixture, with experts beside it.
Residual make_feed_forward(const LayerTensors& tensors, const HyperParameters& hp,
                           const DenseAndExpertsSpec& spec) {
  Residual out;
  if (spec.experts.router.experts == 0) {
    out.norm = read_norm(tensors, hp, "ffn_norm.weight");
    out.block = std::make_unique<FeedForward>(tensors, spec.dense);
  } else {
    out.block = std::make_unique<DenseAndExperts>(tensors, spec);
  }
  out.post_norm = read_norm(tensors, hp, "post_ffw_norm.weight");
  return out;
}

}  // namespace

std::unique_ptr<Decoder> make_gemma4(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys, {.epsilon = 1e-6f});
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::vector<std::uint32_t> slides =
      keys.per_layer("attention.sliding_window_pattern", hp.layers);
  const std::uint32_t sharing = keys.whole_or("attention.shared_kv_layers", 0);
  const std::size_t e = hp.embedding;
  auto decoder = std::make_unique<Decoder>(
      hp, layout,
      DecoderOptions{.embedding_scale = std::sqrt(static_cast<float>(e)),
                     .logit_softcap = keys.number_or("final_logit_softcapping", 0)});

  const Heads full_size = heads.front();
  const Heads local_size{.key_dim = keys.count("attention.key_length_swa"),
                         .value_dim = keys.count("attention.value_length_swa")};
  const RopeParameters full = read_rope(keys, hp, full_size.key_dim);
  const RopeParameters local{.dimensions = keys.count_or("rope.dimension_count_swa",
                                                         local_size.key_dim, local_size.key_dim),
                             .base = keys.positive_or("rope.freq_base_swa", 1e4f)};
  const Vector factors = layout.optional_vector("rope_freqs.weight", {full.dimensions / 2});
  std::array kinds{
      LayerKind{
          full_size,
          decoder->add_rope({.parameters = full, .pairing = RopePairing::neox, .factors = factors}),
          0, nullptr},
      LayerKind{local_size, decoder->add_rope({.parameters = local, .pairing = RopePairing::neox}),
                keys.count("attention.sliding_window", context_max), nullptr}};

  const PerLayerInputs* inputs = nullptr;
  const std::uint32_t input_width = keys.whole_or("embedding_length_per_layer_input", 0);
  if (input_width != 0) {
    auto prologue = std::make_unique<PerLayerInputs>(
        layout, PerLayerInputsSpec{e, input_width, hp.layers, hp.vocabulary, hp.norm_epsilon});
    inputs = prologue.get();
    decoder->set_prologue(std::move(prologue));
  }

  ExpertsSpec experts;
  if (keys.whole_or("expert_count", 0) != 0) experts = read_experts(keys, e);
  experts.activation = Activation::geglu;

  AttentionSpec attention{.embedding = e,
                          .norm_epsilon = hp.norm_epsilon,
                          .scale = 1,
                          .head_norm = HeadNorm::each_head,
                          .normalises_values = true,
                          .keys_may_be_values = true};
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    LayerKind& kind = kinds[slides[i] != 0 ? 1 : 0];
    attention.heads = {heads[i].query, heads[i].kv, kind.size.key_dim, kind.size.value_dim};
    attention.rope = kind.rope;
    attention.window = kind.window;
    const bool shares = i + sharing >= hp.layers;
    attention.shares_with = shares ? shared_block(keys, kind, i, heads[i], sharing) : nullptr;
    const Norm attention_norm = read_norm(tensors, hp, "attn_norm.weight");
    auto block = std::make_unique<Attention>(*decoder, tensors, attention);
    if (!shares) kind.last_with_keys = block.get();
    decoder->add({.norm = attention_norm,
                  .block = std::move(block),
                  .post_norm = read_norm(tensors, hp, "post_attention_norm.weight")});
    const Vector layer_scale = tensors.optional_vector("layer_output_scale.weight", {1});
    Residual feed_forward = make_feed_forward(
        tensors, hp, {{e, width[i], Activation::geglu}, experts, hp.norm_epsilon});
    if (inputs == nullptr) feed_forward.stream_scale = layer_scale;
    decoder->add(std::move(feed_forward));
    if (inputs == nullptr) continue;
    decoder->add({.block = std::make_unique<PerLayerInput>(tensors, *inputs, i),
                  .post_norm = read_norm(tensors, hp, "post_norm.weight"),
                  .stream_scale = layer_scale});
  }
  return decoder;
}

}  // namespace sluice::model
