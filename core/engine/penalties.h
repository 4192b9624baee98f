// Changes of the logits by the tokens that a text already has, and by the wish of the caller.
//
// Pure functions: the same arguments give the same bits. Logits that are NaN or -infinity stay as
// they are, and tokens that are not in the vocabulary are passed over.
#pragma once

#include <cstdint>
#include <span>

#include "core/tokenizer/tokenizer.h"

namespace sluice::engine {

struct LogitBias {
  tokenizer::Token token;
  float bias;
};

// How often a token occurs.
struct TokenUse {
  tokenizer::Token token;
  std::uint32_t recent;     // among the tokens that the repeat penalty looks at
  std::uint32_t generated;  // in the generated text, without the prompt
};

// The values that stand here change nothing.
struct Penalties {
  double repeat = 1;     // l / repeat if l > 0, else l * repeat, once for each recent token
  double presence = 0;   // l - presence, for each generated token
  double frequency = 0;  // l - frequency * (how often the token was generated)
};

// Adds each bias to the logit [vocabulary] of its token.
void apply_biases(std::span<const LogitBias> biases, std::span<float> logits);

// Applies the repeat penalty and then the other two, in double precision. `uses` names a token at
// most once.
void apply_penalties(const Penalties& penalties, std::span<const TokenUse> uses,
                     std::span<float> logits);

// Makes it impossible to choose these tokens.
void ban(std::span<const tokenizer::Token> tokens, std::span<float> logits);

}  // namespace sluice::engine
