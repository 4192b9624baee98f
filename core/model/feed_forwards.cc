#include "core/model/feed_forwards.h"

#include <memory>

namespace sluice::model {

std::function<ActivationNumbers(std::size_t layer, bool is_routed)> swiglu_limits(
    const Keys& keys, std::size_t layers) {
  const auto read = [&](const char* name) {
    return keys.contains(name) ? keys.numbers(name, layers) : std::vector<float>(layers, 0);
  };
  return [routed = read("swiglu_clamp_exp"), others = read("swiglu_clamp_shexp")](std::size_t layer,
                                                                                  bool is_routed) {
    return ActivationNumbers{.limit = is_routed ? routed[layer] : others[layer]};
  };
}

FeedForwards::FeedForwards(const Keys& keys, const HyperParameters& hp,
                           const FeedForwardsSpec& spec)
    : embedding_(hp.embedding), spec_(spec), first_mixture_(hp.blocks()) {
  const auto number = [&](const char* name) { return keys.whole_or(name, 0); };
  if (number("expert_count") == 0) {
    width_ = keys.per_layer("feed_forward_length", hp.blocks());
    return;
  }
  first_mixture_ = number("leading_dense_block_count");
  width_ = keys.per_layer("feed_forward_length", hp.blocks(), 0);
  experts_ = read_experts(keys, embedding_, spec_.router);
  experts_.activation = spec_.activation;
  experts_.routes_kept = spec_.routes_kept;
  experts_.weighs_inputs = spec_.weighs_inputs;
  shared_width_ = number("expert_shared_feed_forward_length");
  const std::uint32_t shared = number("expert_shared_count");
  // Several shared experts are stored as one that is as wide as all of them.
  if (shared_width_ == 0) shared_width_ = shared * static_cast<std::uint32_t>(experts_.width);
  if (shared_width_ > width_max) {
    throw keys.error("expert_shared_count", "gives an expert that is too wide");
  }
}

FeedForwardSpec FeedForwards::network(std::size_t layer, std::size_t width) const {
  FeedForwardSpec out{.embedding = embedding_, .width = width, .activation = spec_.activation};
  if (spec_.numbers) out.numbers = spec_.numbers(layer, false);
  return out;
}

Residual FeedForwards::residual(const LayerTensors& tensors, std::size_t layer,
                                const Norm& norm) const {
  Residual out{.norm = norm};
  const bool has_router = !spec_.some_are_dense || tensors.has("ffn_gate_inp.weight");
  if (layer < first_mixture_ || !has_router) {
    out.block = std::make_unique<FeedForward>(tensors, network(layer, width_[layer]));
    return out;
  }
  // Some files do not say how wide it is.
  const std::size_t rows = tensors.rows("ffn_up_shexp.weight");
  if (const std::size_t width = shared_width_ != 0 ? shared_width_ : rows; width != 0) {
    FeedForwardSpec shared = network(layer, width);
    shared.is_shared_expert = true;
    out.beside = std::make_unique<FeedForward>(tensors, shared);
  }
  ExpertsSpec experts = experts_;
  if (spec_.numbers) experts.numbers = spec_.numbers(layer, true);
  out.block = std::make_unique<Experts>(tensors, experts);
  return out;
}

}  // namespace sluice::model
