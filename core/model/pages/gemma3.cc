// Gemma 3 (Google 2025, arXiv:2503.19786): Gemma 2 with norms of queries and keys in place of the
// cap on scores, and five layers with a window, whose positions rotate faster, to one without.
// Files that name no window are of models that have none in any layer (Rnj-1, Essential AI 2025).
#include <cmath>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gemma3(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.epsilon = 1e-6f});
  const auto e = static_cast<float>(model.hp.embedding);
  model.rotate(RopePairing::neox);
  model.norms = sandwich_norms;
  model.feed_forwards.activation = Activation::geglu;
  model.options = {.embedding_scale = std::sqrt(e),
                   .logit_softcap = keys.number_or("final_logit_softcapping", 0)};
  model.attention.head_norm = HeadNorm::each_head;
  // The 27B model, of 62 layers, derives the scale from embedding / heads instead of the head size.
  if (model.hp.layers == 62) {
    model.attention.scale = 1 / std::sqrt(e / static_cast<float>(model.heads[0].query));
  }
  model.read_windows(6);
  if (model.window != 0) {
    model.rope->parameters.base =
        keys.positive_or("rope.freq_base", keys.positive_or("rope.global.freq_base", 1e6f));
  }
  model.rotate_windows(
      keys.positive_or("rope.freq_base_swa", keys.positive_or("rope.local.freq_base", 1e4f)));
  return model.make();
}

}  // namespace sluice::model
