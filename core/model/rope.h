// Rotary position embeddings (RoPE, Su et al. 2021): the angles.
//
// Pair i of a head at position p turns by theta = p * base^(-2 i / dimensions) / factor_i, with
// factor_i from the tensor rope_freqs (Llama 3) or 1. Linear scaling divides the angle by s. YaRN
// (Peng et al. 2023) divides only the slow pairs, blends in between, and scales the magnitude.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/model/hyper_parameters.h"

namespace sluice::model {

class Rope {
 public:
  // `frequency_factors` has one element per pair or is empty.
  Rope(const RopeParameters& parameters, std::span<const float> frequency_factors);

  std::size_t pairs() const { return frequencies_.size(); }

  // The cosines and sines of one position, [pairs()] each, magnitude included.
  void angles(std::size_t position, float* cosines, float* sines) const;

 private:
  std::vector<double> frequencies_;  // radians per position
  double magnitude_ = 1;
};

}  // namespace sluice::model
