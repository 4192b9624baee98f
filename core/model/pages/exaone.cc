// EXAONE 3.0, 3.5 and Deep (LG AI Research 2024, arXiv:2412.04862): Llama with halves of a head
// that rotate together.
//
// EXAONE 4 (LG AI Research 2025, arXiv:2507.11407): norms after the parts and none before, and a
// norm of each head of queries and keys. Files that name a window are of models in which three of
// four layers have it, and only these rotate.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_exaone(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  return model.make();
}

std::unique_ptr<Decoder> make_exaone4(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  model.norms = post_norms;
  model.attention.head_norm = HeadNorm::each_head;
  model.read_windows(4);
  model.only_windows_rotate = true;
  return model.make();
}

}  // namespace sluice::model
