// The plain transformer, which most architectures are: layers of attention and of a feed-forward
// part, dense or a mixture of experts, with norms before or after them.
//
//   x += post_norm(attention(norm(x)))
//   x += post_norm(feed_forward(norm(x)))
//
// A page makes one, sets what its model has otherwise, and calls make(). As it is made it is the
// Llama of 2023 without positions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/model/blocks/attention.h"
#include "core/model/decoder.h"
#include "core/model/feed_forwards.h"
#include "core/model/hyper_parameters.h"
#include "core/model/keys.h"
#include "core/model/rotary_table.h"
#include "core/model/weights.h"

namespace sluice::model {

// Names of the norms of a layer; null: none stands there.
struct NormNames {
  const char* attention = "attn_norm.weight";
  const char* after_attention = nullptr;
  const char* feed_forward = "ffn_norm.weight";
  const char* after_feed_forward = nullptr;
  // Of the stream, once a part has been added to it.
  const char* of_attention_sum = nullptr;
  const char* of_feed_forward_sum = nullptr;
  // What is normalised then is added to the stream as it was before attention, and goes through
  // this norm. Only where the file has it.
  const char* of_second_attention_sum = nullptr;
};

// After each sum (BERT, the transformer of 2017).
inline constexpr NormNames sum_norms = {.attention = nullptr,
                                        .feed_forward = nullptr,
                                        .of_attention_sum = "attn_output_norm.weight",
                                        .of_feed_forward_sum = "layer_output_norm.weight",
                                        .of_second_attention_sum = "attn_norm_2.weight"};

// Before and after each part (Gemma 2).
inline constexpr NormNames sandwich_norms = {.after_attention = "post_attention_norm.weight",
                                             .after_feed_forward = "post_ffw_norm.weight"};
// After each part alone (OLMo 2).
inline constexpr NormNames post_norms = {.attention = nullptr,
                                         .after_attention = "post_attention_norm.weight",
                                         .feed_forward = nullptr,
                                         .after_feed_forward = "post_ffw_norm.weight"};
// Despite its name, the norm stands before the feed-forward part.
inline constexpr NormNames renamed_norms = {.feed_forward = "post_attention_norm.weight"};

// Which layers have a window where the file does not say it: all but one in each period.
enum class FullLayer { last_of_period, first_of_period };

struct Transformer {
  // Reads the keys of all decoders; see read_hyper_parameters(). Throws ModelError.
  Transformer(const Keys& keys, WeightLayout& layout, const ModelKind& kind = {});

  const Keys& keys;
  WeightLayout& layout;
  const HyperParameters hp;
  const std::vector<Heads> heads;  // by layer

  DecoderOptions options = {};
  NormNames norms = {};
  std::optional<float> post_norm_epsilon = {};  // of norms after parts, if it differs
  AttentionSpec attention = {};                 // what all layers have in common
  FeedForwardsSpec feed_forwards = {};
  float residual_scale = 1;  // of what a part adds
  // Where norms.feed_forward is null, the feed-forward part sees what attention sees, and both add
  // to the stream together: x += attention(h) + feed_forward(h), h = norm(x).
  bool is_parallel = false;
  bool first_is_bare = false;  // no norm stands before the attention of layer 0 (ModernBERT)

  // Layers with a window, and how far they see; in an encoder to both sides, half of it to each.
  // `window_rope` is their rotation, if it differs.
  std::uint32_t window = 0;
  std::vector<bool> slides;
  std::optional<RotarySpec> rope, window_rope;
  bool only_windows_rotate = false;  // if there are any

  // Another mixer in place of attention, or beside it where `mixes_beside_attention`; null for a
  // layer that has attention alone.
  using MakeMixer = std::function<std::unique_ptr<Block>(
      Decoder& decoder, const LayerTensors& tensors, std::uint32_t layer)>;
  MakeMixer make_mixer = {};
  bool mixes_beside_attention = false;

  // Changes what attention has in common with that of other layers.
  std::function<void(std::uint32_t layer, AttentionSpec& attention)> change_layer = {};

  // Lets queries and keys rotate, as the keys "rope.*" say. Without it they have no positions.
  void rotate(RopePairing pairing);

  // Reads "attention.sliding_window" (`otherwise` where the file has none; 0: no window) and
  // "attention.sliding_window_pattern", an array or a period.
  void read_windows(std::uint32_t period, FullLayer full = FullLayer::last_of_period,
                    std::uint32_t otherwise = 0);
  // Layers with a window rotate by `base` and are not stretched.
  void rotate_windows(float base);

  // Whether the block that predicts further tokens is like a layer with attention over all tokens;
  // `make_mixer` and `change_layer` get its number, hp.layers, too.
  bool can_predict = false;

  // Declares all tensors. Throws ModelError.
  std::unique_ptr<Decoder> make();

 private:
  void add_layer(Decoder& decoder, const FeedForwards& parts, std::uint32_t layer,
                 const RotaryTable* rope_table, bool is_sliding) const;
  Residual mixer(Decoder& decoder, const LayerTensors& tensors, std::uint32_t layer,
                 const AttentionSpec& spec) const;
  Residual feed_forward(const FeedForwards& parts, const LayerTensors& tensors,
                        std::uint32_t layer) const;
  Norm norm(const LayerTensors& tensors, const char* name) const;
  Norm post_norm(const LayerTensors& tensors, const char* name) const;
};

// For Transformer::make_mixer: a `Mixer` in place of attention where the file gives a layer no
// heads. `model` must outlive what it returns.
template <typename Mixer, typename Spec>
Transformer::MakeMixer in_layers_without_heads(const Transformer& model, const Spec& spec) {
  return [&model, spec](Decoder& decoder, const LayerTensors& tensors, std::uint32_t layer) {
    const bool is_mixer = model.heads[layer].query == 0;
    return is_mixer ? std::make_unique<Mixer>(decoder, tensors, spec) : nullptr;
  };
}

// The factors of the pairs of "rope_freqs.weight" (Llama 3); empty where the file has none.
Vector read_rope_factors(WeightLayout& layout, const RopeParameters& rope);

// The router of most mixtures whose scores are sigmoids: whether weights are divided by their sum
// is a key.
RouterSpec sigmoid_router(const Keys& keys);

// For YaRN whose magnitude is its own, whatever converters write as yarn_attn_factor.
void use_own_magnitude(const Keys& keys, RopeParameters& rope);

// Adds the factors of short and of long texts (LongRoPE), where the file has them.
void read_longrope_factors(WeightLayout& layout, RotarySpec& rope);

}  // namespace sluice::model
