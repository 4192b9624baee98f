// Mellum 2 (JetBrains 2026): a mixture of experts in every layer, norms of the heads of queries and
// keys, and a window in three of four layers, which are not stretched with YaRN as the others are.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_mellum(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  use_own_magnitude(keys, model.rope->parameters);
  model.attention.head_norm = HeadNorm::each_head;
  model.read_windows(4);
  model.rotate_windows(keys.positive_or("rope.freq_base_swa", model.rope->parameters.base));
  return model.make();
}

}  // namespace sluice::model
