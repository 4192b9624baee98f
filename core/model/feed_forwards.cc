#include "core/model/feed_forwards.h"

#include <memory>

namespace sluice::model {

FeedForwards::FeedForwards(const Keys& keys, const HyperParameters& hp, Activation activation,
                           const RouterSpec& router)
    : embedding_(hp.embedding), activation_(activation), first_mixture_(hp.layers) {
  const auto number = [&](const char* name) { return keys.whole_or(name, 0); };
  if (number("expert_count") == 0) {
    width_ = keys.per_layer("feed_forward_length", hp.layers);
    return;
  }
  first_mixture_ = number("leading_dense_block_count");
  width_ = keys.per_layer("feed_forward_length", hp.layers, 0);
  experts_ = read_experts(keys, embedding_, router);
  experts_.activation = activation;
  shared_width_ = number("expert_shared_feed_forward_length");
  if (shared_width_ == 0) {
    // Several shared experts are stored as one that is as wide as all of them.
    shared_width_ = number("expert_shared_count") * static_cast<std::uint32_t>(experts_.width);
  }
  if (shared_width_ > width_max) {
    throw keys.error("expert_shared_count", "gives an expert that is too wide");
  }
}

Residual FeedForwards::residual(const LayerTensors& tensors, std::size_t layer, Vector norm) const {
  Residual out;
  out.norm = norm;
  if (layer < first_mixture_) {
    const FeedForwardSpec dense{embedding_, width_[layer], activation_};
    out.block = std::make_unique<FeedForward>(tensors, dense);
    return out;
  }
  if (shared_width_ != 0) {
    const FeedForwardSpec shared{embedding_, shared_width_, activation_, true};
    out.beside = std::make_unique<FeedForward>(tensors, shared);
  }
  out.block = std::make_unique<Experts>(tensors, experts_);
  return out;
}

}  // namespace sluice::model
