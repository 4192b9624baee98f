// Gemma 2 (Google 2024, arXiv:2408.00118): norms before and after each part, a window in every
// other layer, and scores and logits that are capped softly.
//
//   x = sqrt(E) embedding
//   x += rms_norm(attention(rms_norm(x)))
//   x += rms_norm(geglu_ffn(rms_norm(x)))
//
// The files store the weights of norms with the paper's 1 already added.
#include <cmath>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gemma2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.epsilon = 1e-6f});
  const auto e = static_cast<float>(model.hp.embedding);
  model.rotate(RopePairing::neox);
  model.norms = sandwich_norms;
  model.feed_forwards.activation = Activation::geglu;
  model.options = {.embedding_scale = std::sqrt(e),
                   .logit_softcap = keys.positive_or("final_logit_softcapping", 30)};
  model.attention.softcap = keys.positive_or("attn_logit_softcapping", 50);
  // The 27B model, of 46 layers, derives the scale from embedding / heads instead of the head size.
  if (model.hp.layers == 46) {
    model.attention.scale = 1 / std::sqrt(e / static_cast<float>(model.heads[0].query));
  }
  model.read_windows(2, FullLayer::last_of_period, 4096);
  return model.make();
}

}  // namespace sluice::model
