// Phi-3, 3.5 and 4 (Microsoft 2024, arXiv:2404.14219): Llama with fused projections, and rotation
// of a part of each head, stretched by factors of its pairs (LongRoPE, Ding et al. 2024,
// arXiv:2402.13753): one set for contexts up to the original one, another for longer ones. Windows
// that files name were not used in training beyond the first models, and are not used here.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_phi3(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  read_longrope_factors(layout, *model.rope);
  keys.leave_aside("attention.sliding_window");
  return model.make();
}

}  // namespace sluice::model
