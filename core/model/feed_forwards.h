// The feed-forward part of each layer, as the metadata describe it: a dense network, or a mixture
// of experts, which may have one expert that all tokens share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/blocks/experts.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/decoder.h"
#include "core/model/hyper_parameters.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

struct FeedForwardsSpec {
  Activation activation = Activation::swiglu;
  RouterSpec router = {};                           // values for keys that the file does not have
  bool routes_kept = false, weighs_inputs = false;  // see ExpertsSpec
  bool some_are_dense = false;  // layers of a mixture that have no router, wherever they stand
  // The numbers of the activation by layer: of routed experts, or of the other networks. Null: the
  // activation has none.
  std::function<ActivationNumbers(std::size_t layer, bool is_routed)> numbers = {};
};

// For FeedForwardsSpec::numbers: the limits of SwiGLU that "swiglu_clamp_exp" has for routed
// experts and "swiglu_clamp_shexp" for the other networks; 0 where the file has no such key.
std::function<ActivationNumbers(std::size_t layer, bool is_routed)> swiglu_limits(
    const Keys& keys, std::size_t layers);

class FeedForwards {
 public:
  // Reads "feed_forward_length" and, if "expert_count" is above 0, the keys "expert_*" and
  // "leading_dense_block_count". Throws ModelError when a key is missing or its value makes no
  // sense.
  FeedForwards(const Keys& keys, const HyperParameters& hp, const FeedForwardsSpec& spec = {});

  // The width of a layer's dense network; 0 where it has none.
  std::uint32_t width(std::size_t layer) const { return width_[layer]; }

  // Whether the file has the feed-forward part of a layer, whose tensors these are.
  static bool has(const LayerTensors& tensors) {
    return tensors.has("ffn_down.weight") || tensors.has("ffn_gate_inp.weight");
  }

  // The residual of layer `layer`, with `norm` before it. Declares its tensors; throws ModelError.
  Residual residual(const LayerTensors& tensors, std::size_t layer, const Norm& norm) const;

 private:
  FeedForwardSpec network(std::size_t layer, std::size_t width) const;

  std::size_t embedding_;
  FeedForwardsSpec spec_;
  std::vector<std::uint32_t> width_;  // by layer
  std::size_t first_mixture_;         // layers from here on have experts
  ExpertsSpec experts_ = {};
  std::uint32_t shared_width_ = 0;  // of the expert that all tokens share; 0: none
};

}  // namespace sluice::model
