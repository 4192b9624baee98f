// Muse Glimmer (Meta 2026): norms before and after each part, of the embeddings, and of the heads
// of queries and keys; attention with a gate of each element; three of four layers have a window,
// and only these rotate.
//
//   x = rms(embedding), without weights
//   x += rms_norm(attention(rms_norm(x)) * sigmoid(Wg rms_norm(x)))
//   x += rms_norm(swiglu_ffn(rms_norm(x)))
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_muse_glimmer(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  model.norms = sandwich_norms;
  model.post_norm_epsilon = 1e-8f;  // no key says it
  model.attention.head_norm = HeadNorm::each_head;
  model.attention.gate = AttentionGate::sigmoid;
  model.read_windows(4);
  model.only_windows_rotate = true;
  model.options = {.normalises_embeddings = true,
                   .logit_scale = keys.number_or("logit_scale", 1),
                   .logit_softcap = keys.number_or("final_logit_softcapping", 0)};
  return model.make();
}

}  // namespace sluice::model
