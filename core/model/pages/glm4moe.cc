// GLM-4.5, 4.6 and 4.7 (Zhipu 2025, arXiv:2508.06471) and the text parts of GLM-4.5V and 4.6V: a
// mixture of experts after some dense layers, whose router adds a bias to its sigmoid scores for
// the choice, and with one expert that all tokens share. Half of each head rotates; the large
// models have norms of the heads of queries and keys.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_glm4moe(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  keys.leave_aside("rope.dimension_sections");  // texts rotate as without
  model.norms = renamed_norms;
  if (layout.has("blk.0.attn_q_norm.weight")) model.attention.head_norm = HeadNorm::each_head;
  model.feed_forwards.router = sigmoid_router(keys);
  model.can_predict = true;
  return model.make();
}

}  // namespace sluice::model
