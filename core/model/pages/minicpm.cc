// MiniCPM 1, 2B, and MiniCPM 4 (OpenBMB 2024, arXiv:2404.06395; 2025, arXiv:2506.07900): Llama with
// multipliers as Granite has them, for which old files have no keys, and with factors of its pairs
// for long texts in the newer ones (LongRoPE).
#include <cmath>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_minicpm(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  if (keys.whole_or("expert_count", 0) != 0) {
    throw keys.error("expert_count", "is not 0; mixtures of this architecture are not supported");
  }
  model.rotate(RopePairing::norm);
  read_longrope_factors(layout, *model.rope);
  const auto e = static_cast<float>(model.hp.embedding);
  const auto layers = static_cast<float>(model.hp.layers);
  model.options.embedding_scale = keys.number_or("embedding_scale", 12);
  model.options.logit_scale = 1 / keys.positive_or("logit_scale", e / 256);
  model.residual_scale = keys.number_or("residual_scale", 1.4f / std::sqrt(layers));
  return model.make();
}

}  // namespace sluice::model
