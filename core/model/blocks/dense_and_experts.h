// The feed-forward part of the mixtures of Gemma 4 (Google 2026): a dense network and experts side
// by side, each with its own norms. With x the residual stream, the block gives
//
//   rms_norm_1(dense(rms_norm(x))) + rms_norm_2(experts(pre_norm_2(x)))
//
// The router sees rms_norm(x) * scale / sqrt(E).
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/model/blocks/block.h"
#include "core/model/blocks/experts.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/weights.h"

namespace sluice::model {

struct DenseAndExpertsSpec {
  FeedForwardSpec dense = {};
  ExpertsSpec experts = {};
  float norm_epsilon = 0;
};

class DenseAndExperts final : public Block {
 public:
  // Tensors ffn_norm, those of the dense network, post_ffw_norm_1, ffn_gate_inp.scale,
  // pre_ffw_norm_2, those of the experts, post_ffw_norm_2. Throws ModelError.
  DenseAndExperts(const LayerTensors& tensors, const DenseAndExpertsSpec& spec);

  std::size_t size_max() const override { return std::max(dense_.size_max(), experts_.size_max()); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  std::size_t embedding_;
  float norm_epsilon_;
  Vector dense_norm_;  // [E], as are the other norms
  FeedForward dense_;
  Vector dense_post_norm_, router_scale_, experts_norm_;
  Experts experts_;
  Vector experts_post_norm_;
  float* dense_out_ = nullptr;  // [columns][E], as is the next
  float* experts_in_ = nullptr;
};

}  // namespace sluice::model
