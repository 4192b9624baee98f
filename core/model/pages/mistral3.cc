// Ministral 3, Devstral 2 and the text parts of Mistral Small 3 (Mistral AI 2025): Llama with YaRN,
// and queries that grow with the logarithm of their position (Llama 4's temperature).
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_mistral3(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  model.attention.temperature = read_query_temperature(keys, model.rope->parameters);
  return model.make();
}

}  // namespace sluice::model
