// The feed-forward part of each layer, of models that are mixtures of experts or not, as their
// metadata say: a dense network; or experts, beside which there may be one for all tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model/blocks/experts.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/decoder.h"
#include "core/model/hyper_parameters.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

class FeedForwards {
 public:
  // "feed_forward_length", and with an "expert_count" above 0 "expert_*" and
  // "leading_dense_block_count". `router`: what holds where the file does not say. Throws
  // ModelError where a key is missing or makes no sense.
  FeedForwards(const Keys& keys, const HyperParameters& hp,
               Activation activation = Activation::swiglu, const RouterSpec& router = {});

  // The width of a layer's dense network; 0 where it has none.
  std::uint32_t width(std::size_t layer) const { return width_[layer]; }

  // What layer `layer` adds after `norm`. Declares its tensors; throws ModelError.
  Residual residual(const LayerTensors& tensors, std::size_t layer, Vector norm) const;

 private:
  std::size_t embedding_;
  Activation activation_;
  std::vector<std::uint32_t> width_;  // by layer
  std::size_t first_mixture_;         // layers from here on have experts
  ExpertsSpec experts_ = {};
  std::uint32_t shared_width_ = 0;  // of the expert for all tokens; 0: there is none
};

}  // namespace sluice::model
