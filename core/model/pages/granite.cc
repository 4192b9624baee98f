// Granite 3 and 4, dense or a mixture of experts (granitemoe; IBM 2024): Llama with four
// multipliers (µP, Yang et al. 2022, arXiv:2203.03466): of the embeddings, of what a part adds, of
// scores, and a divisor of logits.
#include "core/model/families.h"
#include "core/model/granite_scales.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_granite(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  read_granite_scales(model);
  rotate_granite(model);
  return model.make();
}

}  // namespace sluice::model
