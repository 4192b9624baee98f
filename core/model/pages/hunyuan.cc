// Hunyuan (Tencent 2025), dense, and A13B (hunyuan-moe; arXiv:2411.02265), a mixture of experts
// with one that all tokens share: Llama with halves of a head that rotate together, and a norm of
// each head of queries and keys behind the rotation.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_hunyuan(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  model.attention.head_norm = HeadNorm::each_head;
  model.attention.normalises_rotated = true;
  return model.make();
}

}  // namespace sluice::model
