// StarCoder 2 (BigCode 2024, arXiv:2402.19173): norms that subtract the mean, a feed-forward
// network without a gate, and biases everywhere. The window of its training is longer than most
// texts, and is not used here.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_starcoder2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.subtracts_mean = true});
  model.rotate(RopePairing::neox);
  model.feed_forwards.activation = Activation::gelu;
  keys.leave_aside("attention.sliding_window");
  return model.make();
}

}  // namespace sluice::model
