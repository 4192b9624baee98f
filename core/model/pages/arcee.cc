// AFM (Arcee AI 2025): Llama with YaRN and squared ReLU, which has no gate.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_arcee(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  use_own_magnitude(keys, model.rope->parameters);
  model.feed_forwards.activation = Activation::relu_squared;
  return model.make();
}

}  // namespace sluice::model
