// The token that a model finds likeliest, and how likely it finds it.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "core/tokenizer/tokenizer.h"

namespace sluice::speculate {

struct Likeliest {
  tokenizer::Token token;
  double probability;
};

// By the logits of all tokens that there are, one at least.
inline Likeliest likeliest_of(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  // What is less likely by more than that adds 2 % in a vocabulary of 150,000, and would take most
  // of the time.
  constexpr float negligible = 16;
  double sum = 0;
  for (const float logit : logits) {
    if (logit > *best - negligible) sum += std::exp(static_cast<double>(logit - *best));
  }
  return {static_cast<tokenizer::Token>(best - logits.begin()), 1 / std::max(sum, 1.0)};
}

}  // namespace sluice::speculate
