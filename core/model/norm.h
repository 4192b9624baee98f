// The norms of the residual stream: of the root mean square (Zhang and Sennrich 2019), or of the
// mean and the variance (LayerNorm, Ba et al. 2016).
#pragma once

#include <cstddef>
#include <string>

#include "core/model/hyper_parameters.h"
#include "core/model/weights.h"
#include "kernels/vector_ops.h"

namespace sluice::model {

struct Norm {
  Vector weight = {};  // [E]; empty: there is no norm
  Vector bias = {};    // [E], or empty
  float epsilon = 0;
  bool subtracts_mean = false;

  bool empty() const { return weight.empty(); }

  // y = norm(x), both [E]; they may be the same.
  void apply(const kernels::VectorOps& ops, const float* x, float* y) const {
    if (subtracts_mean) {
      const float* added = bias.empty() ? nullptr : bias.data();
      ops.layer_norm(x, weight.data(), added, epsilon, weight.size(), y);
    } else {
      ops.rms_norm(x, weight.data(), epsilon, weight.size(), y);
    }
  }
};

// Declares a norm of the model's kind: the tensor of this name and, where means are subtracted, the
// bias that the file may have beside it. `tensors` is a WeightLayout or a LayerTensors. Throws
// ModelError.
template <typename Tensors>
Norm read_norm(Tensors& tensors, const HyperParameters& hp, const std::string& name) {
  Norm norm{.weight = tensors.vector(name, {hp.embedding}),
            .epsilon = hp.norm_epsilon,
            .subtracts_mean = hp.norms_subtract_mean};
  constexpr std::string_view suffix = ".weight";
  if (norm.subtracts_mean && name.ends_with(suffix)) {
    const std::string stem = name.substr(0, name.size() - suffix.size());
    norm.bias = tensors.optional_vector(stem + ".bias", {hp.embedding});
  }
  return norm;
}

}  // namespace sluice::model
