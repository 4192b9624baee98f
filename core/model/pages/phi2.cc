// Phi-1, 1.5 and 2 (Microsoft 2023, arXiv:2309.05463): attention and a feed-forward network without
// a gate side by side, norms that subtract the mean, biases everywhere, and rotation of a part of
// each head.
//
//   h = layer_norm(x)
//   x += attention(h) + gelu_ffn(h)
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_phi2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.subtracts_mean = true});
  model.rotate(RopePairing::neox);
  model.is_parallel = true;
  model.norms.feed_forward = nullptr;
  model.feed_forwards.activation = Activation::gelu;
  return model.make();
}

}  // namespace sluice::model
