// OLMo 2 and 3 (Ai2 2025, arXiv:2501.00656): norms stand after the parts and none before, and
// queries and keys are normalised over all heads together.
//
//   x += rms_norm(attention(x))
//   x += rms_norm(swiglu_ffn(x))
//
// OLMo 3 has the same name; it says so with a window, which three of four layers have. Only those
// without are stretched with YaRN, always with its usual ramp (32 and 1).
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_olmo2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.norms = post_norms;
  model.attention.head_norm = HeadNorm::all_heads;
  model.read_windows(4);
  RopeParameters& rope = model.rope->parameters;
  rope.yarn_beta_fast = 32;
  rope.yarn_beta_slow = 1;
  use_own_magnitude(keys, rope);
  model.rotate_windows(keys.positive_or("rope.freq_base_swa", rope.base));
  return model.make();
}

}  // namespace sluice::model
