// Qwen 2 and 2.5 (Qwen Team 2024, arXiv:2407.10671): Llama with biases of queries, keys and values,
// which Attention takes where the file has them, and halves of a head that rotate together.
//
// Qwen 1.5 and 2 MoE have experts in every layer, whose weights are scores of the softmax as they
// are, and one expert that all tokens share, with a gate. Seed-OSS (ByteDance 2025) has another
// name for a norm.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_qwen2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  return model.make();
}

std::unique_ptr<Decoder> make_qwen2moe(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.feed_forwards.router.divides_by_sum = false;
  return model.make();
}

std::unique_ptr<Decoder> make_seed_oss(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.norms = renamed_norms;
  return model.make();
}

}  // namespace sluice::model
