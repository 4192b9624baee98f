// Rotary position embeddings (RoPE, Su et al. 2021): the angles.
//
// Pair i of a head at position p is rotated by theta = p * base^(-2 i / dimensions) / factor_i,
// with factor_i from a tensor (rope_freqs of Llama 3, rope_factors_* of longrope) or 1. Linear
// scaling divides the angle by s. YaRN (Peng et al. 2023) divides only the slow pairs, blends in
// between, and scales the magnitude.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::model {

enum class RopeScaling { none, linear, yarn };

struct RopeParameters {
  std::uint32_t dimensions = 0;  // of a head that are rotated, even
  float base = 10000;
  RopeScaling scaling = RopeScaling::none;
  float factor = 1;  // s: positions are compressed by it
  std::uint32_t original_context = 0;
  float attention_factor = 1;  // multiplies cosines and sines, besides YaRN's own factor
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
  float yarn_extrapolation = 1;
  // k: YaRN's magnitude 1 + 0.1 ln s is divided by 1 + 0.1 k ln s.
  float yarn_log_multiplier = 0;

  bool operator==(const RopeParameters&) const = default;
};

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
