// Gemma and CodeGemma (Google 2024, arXiv:2403.08295): Llama with GeGLU and scaled embeddings.
//
// The files store the weights of norms with the paper's 1 already added.
#include <cmath>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gemma(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.epsilon = 1e-6f});
  model.rotate(RopePairing::neox);
  model.options.embedding_scale = std::sqrt(static_cast<float>(model.hp.embedding));
  model.feed_forwards.activation = Activation::geglu;
  return model.make();
}

}  // namespace sluice::model
