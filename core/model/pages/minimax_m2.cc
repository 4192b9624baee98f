// MiniMax-M2 (MiniMax 2025): a mixture of experts in every layer, whose router adds a bias to its
// sigmoid scores for the choice. Queries and keys are normalised over all heads together, and half
// of each head rotates.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_minimax_m2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.attention.head_norm = HeadNorm::all_heads;
  model.feed_forwards.router.scores = RouterScores::sigmoid;
  return model.make();
}

}  // namespace sluice::model
