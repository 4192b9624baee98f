// dots.llm1 (rednote-hilab 2025, arXiv:2506.05767), and Ling and Ring 2.0 (inclusionAI 2025,
// arXiv:2510.22115; bailingmoe2), which choose experts by groups and rotate half of each head: a
// mixture of experts after some dense layers, whose router adds a bias to its sigmoid scores for
// the choice, with one expert that all tokens share, and norms of the heads of queries and keys.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_dots1(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  use_own_magnitude(keys, model.rope->parameters);
  model.attention.head_norm = HeadNorm::each_head;
  model.feed_forwards.router = sigmoid_router(keys);
  return model.make();
}

}  // namespace sluice::model
