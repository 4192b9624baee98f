// The multipliers of Granite models, dense and hybrid (IBM 2024, after the maximal update
// parametrisation of Yang et al. 2022, arXiv:2203.03466).
#pragma once

#include "core/model/decoder.h"
#include "core/model/keys.h"

namespace sluice::model {

struct GraniteScales {
  float embedding;  // of the embedded tokens
  float residual;   // of what a block adds
  float attention;  // of scores; 0: 1 / sqrt(key_dim)
  float logit;      // divides logits

  DecoderOptions decoder_options() const {
    return {.embedding_scale = embedding, .logit_divisor = logit};
  }
};

// A multiplier that is absent or 0 is 1.
inline GraniteScales read_granite_scales(const Keys& keys) {
  const auto multiplier = [&](const char* name) {
    const float value = keys.number_or(name, 1);
    return value == 0 ? 1 : value;
  };
  return {.embedding = multiplier("embedding_scale"),
          .residual = multiplier("residual_scale"),
          .attention = keys.number_or("attention.scale", 0),
          .logit = keys.positive("logit_scale")};
}

}  // namespace sluice::model
