// ERNIE 4.5 (Baidu 2025): Llama; or a mixture of experts after some dense layers, whose router adds
// a bias to its softmax scores for the choice, and with one expert that all tokens share
// (ernie4_5-moe).
#include <fmt/format.h>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_ernie4_5(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  const std::uint32_t step = keys.count_or("interleave_moe_layer_step", 1);
  if (step != 1) {
    throw keys.error("interleave_moe_layer_step",
                     fmt::format("is {}; only experts in every layer are supported", step));
  }
  return model.make();
}

}  // namespace sluice::model
