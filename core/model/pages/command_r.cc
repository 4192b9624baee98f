// Command R (Cohere 2024), Aya 23 and Aya Expanse; and Command R7B and A (cohere2;
// arXiv:2504.00698), where three of four layers have a window, and only these rotate:
//
//   h = layer_norm(x)
//   x += attention(h) + swiglu_ffn(h)
//
// Command R+ has norms of the heads of queries and keys, with weights for each head.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {
namespace {

Transformer make_parallel(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.subtracts_mean = true});
  model.rotate(RopePairing::norm);
  model.is_parallel = true;
  model.norms.feed_forward = nullptr;
  model.options.logit_scale = keys.number("logit_scale");
  return model;
}

}  // namespace

std::unique_ptr<Decoder> make_command_r(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_parallel(keys, layout);
  if (layout.has("blk.0.attn_q_norm.weight")) model.attention.head_norm = HeadNorm::own_of_heads;
  return model.make();
}

std::unique_ptr<Decoder> make_cohere2(const Keys& keys, WeightLayout& layout) {
  Transformer model = make_parallel(keys, layout);
  model.read_windows(4);
  model.rotate_windows(keys.positive_or("rope.freq_base_swa", model.rope->parameters.base));
  model.only_windows_rotate = true;
  return model.make();
}

}  // namespace sluice::model
