// gpt-oss (OpenAI 2025, arXiv:2508.10925): a mixture of experts in every layer; attention in a
// window in every second layer, the first among them, with a learned number of each head that joins
// its scores; biases everywhere.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_gpt_oss(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.norms = renamed_norms;
  model.attention.has_sink_logits = true;
  model.feed_forwards.activation = Activation::clamped_swiglu;
  keys.count("attention.sliding_window", context_max);  // all files have one
  model.read_windows(2);
  RotarySpec local = *model.rope;  // stretched as the others are
  local.parameters.base = keys.positive_or("rope.freq_base_swa", local.parameters.base);
  if (local.parameters != model.rope->parameters) model.window_rope = local;
  return model.make();
}

}  // namespace sluice::model
