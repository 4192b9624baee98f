// OLMoE (Ai2 2024, arXiv:2409.02060): a mixture of experts in every layer, whose weights are scores
// of the softmax as they are. Queries and keys are normalised over all heads together.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_olmoe(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.attention.head_norm = HeadNorm::all_heads;
  model.feed_forwards.router.divides_by_sum = false;
  return model.make();
}

}  // namespace sluice::model
