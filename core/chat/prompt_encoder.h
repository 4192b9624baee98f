// Turns the prompt that a template wrote into tokens of the model.
#pragma once

#include <vector>

#include "core/chat/chat_template.h"
#include "core/chat/jinja/text.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::chat {

// The tokens of the form <|...|>, ascending. Text written by people never becomes one of them, even
// if the vocabulary declares them as ordinary user-defined tokens.
std::vector<tokenizer::Token> tokens_like_control(const tokenizer::Tokenizer& tokenizer);

class PromptEncoder {
 public:
  // Bars the tokens of tokens_like_control(), and the tokens <...> and [...] that the templates
  // contain. `tokenizer` must outlive the encoder.
  PromptEncoder(const tokenizer::Tokenizer& tokenizer, const ChatTemplate& chat_template);

  // Recognises control tokens in markup only. Puts the BOS token in front if the model wants one
  // and the template has written none.
  std::vector<tokenizer::Token> encode(const jinja::Text& prompt) const;

 private:
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<tokenizer::Token> barred_;  // ascending
};

}  // namespace sluice::chat
