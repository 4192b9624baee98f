// The multipliers of Granite models, dense, mixtures and hybrids (IBM 2024, after the maximal
// update parametrisation of Yang et al. 2022, arXiv:2203.03466).
#pragma once

#include "core/model/transformer.h"

namespace sluice::model {

// A multiplier that is absent or 0 is 1.
inline void read_granite_scales(Transformer& model) {
  const auto multiplier = [&](const char* name) {
    const float value = model.keys.number_or(name, 1);
    return value == 0 ? 1 : value;
  };
  model.options.embedding_scale = multiplier("embedding_scale");
  model.residual_scale = multiplier("residual_scale");
  model.attention.scale = model.keys.number_or("attention.scale", 0);
  model.options.logit_scale = 1 / model.keys.positive("logit_scale");
}

// Some of the files say that nothing rotates.
inline void rotate_granite(Transformer& model) {
  if (model.keys.flag_or("rope.scaling.finetuned", true)) {
    model.rotate(RopePairing::norm);
  } else {
    model.keys.leave_aside("rope.");
  }
}

}  // namespace sluice::model
