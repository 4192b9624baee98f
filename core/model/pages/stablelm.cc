// StableLM 3B and 2 (Stability AI 2023; 2024, arXiv:2402.17834): Llama with norms that subtract the
// mean, and rotation of a quarter of each head. In StableLM 2 12B attention and the feed-forward
// network stand side by side, and each head of queries and keys has a norm with weights of its own.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_stablelm(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.subtracts_mean = true});
  model.rotate(RopePairing::neox);
  keys.leave_aside("use_parallel_residual");  // the tensors say it
  model.is_parallel = !layout.has("blk.0.ffn_norm.weight");
  if (model.is_parallel) model.norms.feed_forward = nullptr;
  if (layout.has("blk.0.attn_q_norm.weight")) model.attention.head_norm = HeadNorm::own_of_heads;
  return model.make();
}

}  // namespace sluice::model
