// SmolLM 3 (Hugging Face 2025): Llama, but every fourth layer does not rotate its queries and keys
// (NoPE, Yang et al. 2025, arXiv:2501.18795). The metadata does not say which; it is always these.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_smollm3(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  model.change_layer = [](std::uint32_t layer, AttentionSpec& attention) {
    if ((layer + 1) % 4 == 0) attention.rope = nullptr;
  };
  return model.make();
}

}  // namespace sluice::model
