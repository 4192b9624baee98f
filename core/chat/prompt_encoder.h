// From the prompt that a template wrote to the tokens of a model.
#pragma once

#include <vector>

#include "core/chat/chat_template.h"
#include "core/chat/jinja/text.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::chat {

// Tokens, ascending, that a text of people never becomes even where the vocabulary declares them as
// ordinary user-defined ones: those of the form <|...|>.
std::vector<tokenizer::Token> tokens_like_control(const tokenizer::Tokenizer& tokenizer);

class PromptEncoder {
 public:
  // Bars besides those the tokens <...> and [...] that the templates write out. `tokenizer` must
  // outlive the encoder.
  PromptEncoder(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template);

  // Control tokens are found in markup alone. The BOS token stands in front where the model wants
  // one and the template has written none.
  std::vector<tokenizer::Token> encode(const jinja::Text& prompt) const;

 private:
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<tokenizer::Token> barred_;  // ascending
};

}  // namespace sluice::chat
