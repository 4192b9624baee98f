// The token that a model finds likeliest, and how likely it finds it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tokenizer/tokenizer.h"

namespace sluice::speculate {

struct Likeliest {
  tokenizer::Token token;
  double probability;
};

// By the logits of all tokens that there are, one at least. `allowed` has a bit for each token that
// may come, none for those beyond it; empty: any may. Where none may, the probability is 0.
inline Likeliest likeliest_of(std::span<const float> logits,
                              std::span<const std::uint64_t> allowed = {}) {
  const auto may_come = [&](std::size_t i) {
    if (allowed.empty()) return true;
    return i / 64 < allowed.size() && (allowed[i / 64] >> (i % 64) & 1) != 0;
  };
  std::size_t best = logits.size();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if ((best == logits.size() || logits[i] > logits[best]) && may_come(i)) best = i;
  }
  if (best == logits.size()) return {0, 0};
  // What is less likely by more than that adds 2 % in a vocabulary of 150,000, and would take most
  // of the time.
  constexpr float negligible = 16;
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > logits[best] - negligible && may_come(i)) {
      sum += std::exp(static_cast<double>(logits[i] - logits[best]));
    }
  }
  return {static_cast<tokenizer::Token>(best), 1 / std::max(sum, 1.0)};
}

}  // namespace sluice::speculate
