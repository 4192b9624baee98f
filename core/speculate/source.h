// Where drafts come from: guesses at the next tokens of a text.
//
// A draft is checked by the step that evaluates it: it is right if it equals the token that was
// chosen without it. So a source can be wrong, and even hostile, without changing a text; all that
// it changes is how long the text takes.
//
// Threads: a source belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::speculate {

struct Draft {
  tokenizer::Token token;
  // How sure the source is: of two drafts of a source, the one of the higher grade is more often
  // right. How often exactly is found out for each text (speculate/acceptance.h).
  std::uint8_t grade;
};

inline constexpr std::size_t grades = 16;

class Source {
 public:
  virtual ~Source() = default;

  // Appends what may come next, in order, at most `most` tokens; nothing when it has no guess.
  virtual void propose(std::size_t most, std::vector<Draft>& drafts) = 0;
  // These tokens come next in the text: those of the prompt at first, and then the chosen ones,
  // whoever proposed them.
  virtual void accepted(std::span<const tokenizer::Token> tokens) = 0;
  // Lets go of the text. It may begin again, with its first token.
  virtual void forget() = 0;
};

}  // namespace sluice::speculate
