// EuroBERT (Boizard et al. 2025, arXiv:2503.05500) and Llama models that became encoders
// (llama-embed, such as llama-embed-nemotron-8b): the layers of Llama, whose tokens see the whole
// text.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_eurobert(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.is_encoder = true});
  model.rotate(RopePairing::neox);
  return model.make();
}

std::unique_ptr<Decoder> make_llama_embed(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.is_encoder = true});
  model.rotate(RopePairing::norm);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  return model.make();
}

}  // namespace sluice::model
