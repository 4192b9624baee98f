// Qwen 3 (Qwen Team 2025, arXiv:2505.09388): Llama with a norm of each head of queries and keys,
// and halves of a head that rotate together; dense, or a mixture of experts (qwen3moe).
//
// The text parts of Qwen 3 VL (qwen3vl, qwen3vlmoe) are the same: rotation in sections turns texts
// as plain rotation does, and the first layers take features of images only.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_qwen3(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  keys.leave_aside("rope.dimension_sections");
  keys.leave_aside("n_deepstack_layers");
  model.attention.head_norm = HeadNorm::each_head;
  // Qwen3-Reranker: the probability of "yes" against "no" (arXiv:2506.05176).
  model.options.text_head = {.has_softmax = true, .scored_pooling = PoolingType::last};
  return model.make();
}

}  // namespace sluice::model
