#include "core/sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "core/error.h"

namespace sluice::sampling {
namespace {

using tokenizer::Token;

constexpr double least_logprob = std::numeric_limits<float>::lowest();

float to_logprob(double logit, double log_total) {
  const double value = logit - log_total;
  return static_cast<float>(value > least_logprob ? value : least_logprob);  // also replaces NaN
}

}  // namespace

void throw_no_numbers(std::size_t logits) {
  throw ModelError(fmt::format(
      "none of the {} logits that may be chosen is a number above -infinity: the weights in the "
      "model file are damaged, or the architecture computes something that they were not made for",
      logits));
}

void append_logprobs(std::span<const float> logits, Token token, std::uint32_t top,
                     std::vector<TokenLogprob>& logprobs) {
  constexpr float never = -std::numeric_limits<float>::infinity();
  float best = never;
  for (const float logit : logits) best = logit > best ? logit : best;
  if (!(best > never)) throw_no_numbers(logits.size());
  double total = 0;
  for (const float logit : logits) {
    if (logit > never) total += std::exp(static_cast<double>(logit) - static_cast<double>(best));
  }
  const double log_total = static_cast<double>(best) + std::log(total);
  const auto logprob = [&](Token id) {
    return TokenLogprob{id, to_logprob(logits[static_cast<std::size_t>(id)], log_total)};
  };
  logprobs.push_back(logprob(token));
  // The best tokens so far, in their final order. Ids ascend, so a token goes behind its equals.
  std::vector<Token> kept;
  kept.reserve(top + 1);
  const auto logit_of = [&](Token id) { return logits[static_cast<std::size_t>(id)]; };
  for (std::size_t id = 0; id < logits.size() && top != 0; ++id) {
    const float logit = logits[id];
    if (!(logit > never) || (kept.size() == top && !(logit > logit_of(kept.back())))) continue;
    const auto place = std::ranges::find_if(kept, [&](Token k) { return logit_of(k) < logit; });
    kept.insert(place, static_cast<Token>(id));
    if (kept.size() > top) kept.pop_back();
  }
  for (std::uint32_t i = 0; i < top; ++i) {
    logprobs.push_back(logprob(kept[std::min<std::size_t>(i, kept.size() - 1)]));
  }
}

}  // namespace sluice::sampling
