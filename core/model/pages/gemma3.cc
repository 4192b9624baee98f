// Gemma 3 (Google 2025, arXiv:2503.19786): Gemma 2 with norms of queries and keys in place of the
// cap on scores, and five layers with a window, whose positions rotate faster, to one without.
// Files that name no window are of models that have none in any layer (Rnj-1, Essential AI 2025).
//
// EmbeddingGemma (2025, arXiv:2509.20354) has the same layers, but its tokens see what comes after
// them too, half of the window to either side.
#include <cmath>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

namespace {

Transformer make_common(const Keys& keys, WeightLayout& layout, const ModelKind& kind) {
  Transformer model(keys, layout, kind);
  model.rotate(RopePairing::neox);
  model.norms = sandwich_norms;
  model.feed_forwards.activation = Activation::geglu;
  model.options = {.embedding_scale = std::sqrt(static_cast<float>(model.hp.embedding)),
                   .logit_softcap = keys.number_or("final_logit_softcapping", 0)};
  model.attention.head_norm = HeadNorm::each_head;
  model.read_windows(6);
  if (model.window != 0) {
    model.rope->parameters.base =
        keys.positive_or("rope.freq_base", keys.positive_or("rope.global.freq_base", 1e6f));
  }
  model.rotate_windows(
      keys.positive_or("rope.freq_base_swa", keys.positive_or("rope.local.freq_base", 1e4f)));
  return model;
}

}  // namespace

std::unique_ptr<Decoder> make_gemma3(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_common(keys, layout, {.epsilon = 1e-6f});
  // The 27B model, of 62 layers, derives the scale from embedding / heads instead of the head size.
  if (model.hp.layers == 62) {
    model.attention.scale = 1 / std::sqrt(static_cast<float>(model.hp.embedding) /
                                          static_cast<float>(model.heads[0].query));
  }
  return model.make();
}

std::unique_ptr<Decoder> make_gemma_embedding(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_common(keys, layout, {.epsilon = 1e-6f, .is_encoder = true});
  for (const char* name : {"dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in",
                           "dense_3_feat_out", "embedding_length_out"}) {
    keys.leave_aside(name);  // the tensors have these sizes too
  }
  return model.make();
}

}  // namespace sluice::model
