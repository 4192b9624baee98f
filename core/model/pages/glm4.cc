// GLM-4-0414, GLM-Z1 and the text part of GLM-4.xV (Zhipu 2025): norms before and after each part.
//
// Half of each head is rotated. Most files pair neighbouring elements; files made for images too
// pair the two halves, which they show by having sections of the rotation.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_glm4(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(keys.contains("rope.dimension_sections") ? RopePairing::neox : RopePairing::norm);
  model.norms = sandwich_norms;
  return model.make();
}

}  // namespace sluice::model
