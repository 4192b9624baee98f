// Llama and what is built like it: Llama 2 and 3, Mistral 7B, Yi, EuroLLM, Falcon 3 (Touvron et al.
// 2023, arXiv:2307.09288); and Mixtral, a mixture of experts (Jiang et al. 2024, arXiv:2401.04088).
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_llama(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  // The window of the first Mistral, which its text does not need.
  keys.leave_aside("attention.sliding_window");
  return model.make();
}

}  // namespace sluice::model
