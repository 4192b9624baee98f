// ModernBERT (Warner et al. 2024, arXiv:2412.13663): an encoder with norms in front of its parts,
// rotation, and GeGLU. One layer of three sees the whole text; the others see a window around each
// token, and rotate by another base. Layer 0 has no norm in front, since the stream was just
// normalised. The model was trained with the erf form of GELU, of which the tanh form here is less
// than the rounding of its weights away.
#include <string>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_modern_bert(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout, {.subtracts_mean = true, .is_encoder = true});
  model.rotate(RopePairing::neox);
  model.first_is_bare = true;
  const std::string activation = keys.text_or("hidden_activation", "gelu");
  if (activation != "gelu" && activation != "gelu_pytorch_tanh" && activation != "silu") {
    throw keys.error("hidden_activation",
                     "is unknown; supported are gelu, gelu_pytorch_tanh and silu");
  }
  const bool has_silu = activation == "silu";
  model.feed_forwards.activation = has_silu ? Activation::swiglu : Activation::geglu;
  model.options.embedding_norm = "token_embd_norm.weight";
  const std::string scoring = keys.text_or("classifier.activation", "gelu");
  if (scoring != "gelu" && scoring != "tanh" && scoring != "silu") {
    throw keys.error("classifier.activation", "is unknown; supported are gelu, tanh and silu");
  }
  using Scoring = TextHeadSpec::Activation;
  model.options.text_head = {.activation = scoring == "tanh"   ? Scoring::tanh
                                           : scoring == "silu" ? Scoring::silu
                                                               : Scoring::gelu,
                             .scored_pooling = keys.whole_or("classifier.pooling_type", 1) == 2
                                                   ? PoolingType::first
                                                   : PoolingType::mean};
  model.read_windows(3, FullLayer::first_of_period);
  model.rotate_windows(keys.positive_or("rope.freq_base_swa", model.rope->parameters.base));
  return model.make();
}

}  // namespace sluice::model
