// Apertus (Swiss AI 2025, arXiv:2509.14233): Llama with a norm of each head of queries and keys,
// and xIELU, an activation without a gate that has four numbers in each layer.
#include <cmath>

#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {
namespace {

float softplus(float x) {
  return std::log1p(std::exp(x));
}

// The keys have no architecture in front.
std::vector<kernels::Xielu> read_xielu(const Keys& keys, std::size_t layers) {
  const auto of = [&](const char* name) { return keys.numbers(name, layers, false); };
  const std::vector<float> positive = of("xielu.alpha_p"), negative = of("xielu.alpha_n");
  const std::vector<float> beta = of("xielu.beta"), top = of("xielu.eps");
  std::vector<kernels::Xielu> out;
  for (std::size_t i = 0; i < layers; ++i) {
    out.push_back({softplus(positive[i]), beta[i] + softplus(negative[i]), beta[i], top[i]});
  }
  return out;
}

}  // namespace

std::unique_ptr<Decoder> make_apertus(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  model.attention.head_norm = HeadNorm::each_head;
  model.feed_forwards.activation = Activation::xielu;
  model.feed_forwards.numbers = [all = read_xielu(keys, model.hp.layers)](std::size_t layer, bool) {
    return ActivationNumbers{.xielu = all[layer]};
  };
  return model.make();
}

}  // namespace sluice::model
