#include "core/sampling/penalties.h"

#include <algorithm>
#include <limits>

namespace sluice::sampling {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

// The logit of a token that can be chosen; otherwise null. NaN fails the comparison.
float* usable_logit(std::span<float> logits, tokenizer::Token token) {
  const auto id = static_cast<std::size_t>(token);
  return token >= 0 && id < logits.size() && logits[id] > never ? &logits[id] : nullptr;
}

// A penalty makes a token less probable but not impossible.
float to_finite(double logit) {
  constexpr double limit = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -limit, limit));
}

}  // namespace

void apply_biases(std::span<const LogitBias> biases, std::span<float> logits) {
  for (const LogitBias& entry : biases) {
    float* logit = usable_logit(logits, entry.token);
    if (logit != nullptr) *logit = to_finite(static_cast<double>(*logit) + entry.bias);
  }
}

void apply_penalties(const Penalties& penalties, std::span<const TokenUse> uses,
                     std::span<float> logits) {
  for (const TokenUse& use : uses) {
    float* logit = usable_logit(logits, use.token);
    if (logit == nullptr) continue;
    double value = *logit;
    if (use.recent != 0) value = value > 0 ? value / penalties.repeat : value * penalties.repeat;
    if (use.generated != 0) {
      value -= penalties.presence + penalties.frequency * static_cast<double>(use.generated);
    }
    *logit = to_finite(value);
  }
}

void ban(std::span<const tokenizer::Token> tokens, std::span<float> logits) {
  for (const tokenizer::Token token : tokens) {
    if (float* logit = usable_logit(logits, token)) *logit = never;
  }
}

void ban_others(std::span<const std::uint64_t> allowed, std::span<float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool is_allowed = i / 64 < allowed.size() && (allowed[i / 64] >> (i % 64) & 1U) != 0;
    if (!is_allowed) logits[i] = never;
  }
}

}  // namespace sluice::sampling
