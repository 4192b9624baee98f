// Step 3.5 (StepFun 2026): a mixture of experts after some dense layers, with one that all tokens
// share; a window in three of four layers, which have more heads and rotate all of each, where the
// others rotate half; attention with a gate of each head; and limits of SwiGLU in some layers.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_step35(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.read_windows(4, FullLayer::first_of_period);
  model.rotate_windows(keys.positive_or("rope.freq_base_swa", 1e4f));
  RopeParameters& full = model.rope->parameters;
  const Vector factors = read_rope_factors(layout, full);
  full.dimensions /= 2;
  if (!factors.empty()) model.rope->factors = factors.first(full.dimensions / 2);
  if (layout.has("blk.0.attn_q_norm.weight")) model.attention.head_norm = HeadNorm::each_head;
  if (layout.has("blk.0.attn_gate.weight")) model.attention.gate = AttentionGate::sigmoid;
  model.feed_forwards.router = sigmoid_router(keys);
  keys.leave_aside("moe_every_n_layers");  // 1: all that are not dense
  model.feed_forwards.numbers = swiglu_limits(keys, model.hp.layers);
  return model.make();
}

}  // namespace sluice::model
