// Changes logits by the tokens that a text already has, and by the caller's biases.
//
// Pure functions: the same arguments give the same bits. Logits that are NaN or -infinity stay
// unchanged. Tokens that are not in the vocabulary are ignored.
#pragma once

#include <cstdint>
#include <span>

#include "core/tokenizer/tokenizer.h"

namespace sluice::sampling {

struct LogitBias {
  tokenizer::Token token;
  float bias;
};

// How often a token occurs.
struct TokenUse {
  tokenizer::Token token;
  std::uint32_t recent;     // times among the tokens that the repeat penalty looks at
  std::uint32_t generated;  // times in the generated text, without the prompt
};

// The defaults change nothing.
struct Penalties {
  double repeat = 1;     // l / repeat if l > 0, else l * repeat, once for each recent token
  double presence = 0;   // l - presence, for each generated token
  double frequency = 0;  // l - frequency * (how often the token was generated)
};

// Adds each bias to the logit [vocabulary] of its token.
void apply_biases(std::span<const LogitBias> biases, std::span<float> logits);

// Applies the repeat penalty and then the other two, in double precision. Each token occurs at most
// once in `uses`.
void apply_penalties(const Penalties& penalties, std::span<const TokenUse> uses,
                     std::span<float> logits);

// Makes these tokens impossible to choose.
void ban(std::span<const tokenizer::Token> tokens, std::span<float> logits);

// Makes all tokens impossible to choose that have no bit in `allowed` (64 tokens a word, the lowest
// bit first).
void ban_others(std::span<const std::uint64_t> allowed, std::span<float> logits);

}  // namespace sluice::sampling
