// Log probabilities of tokens, as the model gives them: the logarithm of the softmax of the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::sampling {

// Throws ModelError, which says that none of so many logits is a number above -infinity.
[[noreturn]] void throw_no_numbers(std::size_t logits);

struct TokenLogprob {
  tokenizer::Token token;
  float logprob;  // the natural logarithm; the lowest float where the probability is 0
};

// Appends `token` and then the `top` most probable tokens by descending probability, the lower id
// first among equals. The same logits [vocabulary] give the same bits. NaN and -infinity count as
// impossible; where fewer than `top` tokens are possible, the last of them is repeated. Throws
// ModelError where none is.
void append_logprobs(std::span<const float> logits, tokenizer::Token token, std::uint32_t top,
                     std::vector<TokenLogprob>& logprobs);

}  // namespace sluice::sampling
