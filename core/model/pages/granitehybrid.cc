// Granite 4 hybrids and Bamba (IBM 2025): Mamba-2, and attention in the layers that have heads of
// keys, mostly without rotation; with the multipliers of Granite. Some are mixtures of experts,
// with one that all tokens share.
#include "core/model/blocks/mamba2.h"
#include "core/model/families.h"
#include "core/model/granite_scales.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_granitehybrid(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  read_granite_scales(model);
  rotate_granite(model);
  const Mamba2Spec mamba2 = read_mamba2(keys, model.hp.embedding, model.hp.norm_epsilon);
  model.make_mixer = in_layers_without_heads<Mamba2>(model, mamba2);
  return model.make();
}

}  // namespace sluice::model
