// Laguna (Poolside 2026): a mixture of experts after some dense layers, with one that all tokens
// share; a window in three of four layers, which have more heads and rotate otherwise; and
// attention with a gate of each head, or of each element.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_laguna(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  use_own_magnitude(keys, model.rope->parameters);
  model.attention.head_norm = HeadNorm::each_head;
  model.attention.gate = AttentionGate::softplus;
  model.feed_forwards.router = sigmoid_router(keys);
  model.read_windows(4, FullLayer::first_of_period);
  const std::uint32_t dim = first_heads(model.heads).key_dim;
  model.rotate_windows(keys.positive_or("rope.freq_base_swa", model.rope->parameters.base));
  model.window_rope->parameters.dimensions = keys.count_or("rope.dimension_count_swa", dim, dim);
  return model.make();
}

}  // namespace sluice::model
