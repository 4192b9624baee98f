// Falcon-H1 (TII 2025, arXiv:2507.22448): attention and Mamba-2 side by side in every layer. The
// multipliers of its training are in the weights already.
//
//   h = rms_norm(x);  x += attention(h) + mamba2(h)
//   x += swiglu_ffn(rms_norm(x))
#include "core/model/blocks/mamba2.h"
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_falcon_h1(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  if (keys.contains("mlp_gate_multiplier")) {
    throw keys.error("mlp_gate_multiplier",
                     "marks an early file, whose weights lack the multipliers; convert the model "
                     "anew");
  }
  model.rotate(RopePairing::neox);
  model.norms.feed_forward = "ffn_norm";  // without a suffix in all files
  model.mixes_beside_attention = true;
  const Mamba2Spec mamba2 = read_mamba2(keys, model.hp.embedding, model.hp.norm_epsilon);
  model.make_mixer = [&](Decoder& decoder, const LayerTensors& tensors, std::uint32_t) {
    return std::make_unique<Mamba2>(decoder, tensors, mamba2);
  };
  return model.make();
}

}  // namespace sluice::model
