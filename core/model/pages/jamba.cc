// Jamba (AI21 2024, arXiv:2403.19887): Mamba, and attention without positions in the layers that
// have heads of keys; in the larger ones every other layer is a mixture of experts, whose weights
// are not divided by their sum.
#include "core/model/blocks/mamba.h"
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_jamba(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  keys.leave_aside("rope.");
  model.feed_forwards.router.divides_by_sum = false;
  model.feed_forwards.some_are_dense = true;
  const MambaSpec mamba = read_mamba(keys, model.hp.embedding, model.hp.norm_epsilon);
  model.make_mixer = in_layers_without_heads<Mamba>(model, mamba);
  return model.make();
}

}  // namespace sluice::model
