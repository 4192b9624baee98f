// Writes conversations for a model: the chat formats of the major families of models.
//
// A GGUF file describes its format by a program in a template language (tokenizer.chat_template),
// which core/chat/chat_template.h runs. For a file without one a format is named; beside a template
// its family says what ends an answer. The families are data (core/chat/families.h).
//
// What people write cannot become markup: control tokens are taken from the format alone, and a
// message that spells one out is encoded as ordinary text.
//
// The tokens of a conversation are never rewritten: those of its first n messages are a prefix of
// those of its first n + 1, also with the generation prompt when an answer follows. So the keys and
// values of a conversation can be used for its continuation. Where a template does otherwise (moves
// the system text to the last message, removes thoughts from earlier answers) it is not followed.
//
// Threads: immutable after construction; any number of threads may use one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/families.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::chat {

enum class Role { system, user, assistant };

struct Message {
  Role role = Role::user;
  std::string content;
  // Of an answer: the tokens that the model generated, if they are known. They are used in place of
  // the content, since the tokenizer might choose others for the same text.
  std::vector<tokenizer::Token> tokens = {};
  std::string thought = {};  // of an answer: the thought before it
};

class ChatFormat {
 public:
  // `tokenizer` must outlive the format.
  ChatFormat(Family family, const tokenizer::Tokenizer& tokenizer);

  const std::string& name() const { return family_.name; }

  // The tokens of a conversation, with BOS if the model wants it. `add_generation_prompt` appends
  // what makes the model answer. Throws UsageError when a system message is not the first.
  std::vector<tokenizer::Token> encode(std::span<const Message> messages,
                                       bool add_generation_prompt) const;

  // Whether a token ends an answer. Tokens that end any text of the model do so too.
  bool ends_answer(tokenizer::Token token) const;

  // Texts that end an answer: markers of the format that are not tokens of this vocabulary.
  const std::vector<std::string>& stop_texts() const { return stop_texts_; }

 private:
  void append(std::span<const tokenizer::TextPart> parts,
              std::vector<tokenizer::Token>& tokens) const;
  void append_answer(const Message& message, std::vector<tokenizer::Token>& tokens) const;
  std::string_view content_of(const Message& message) const;

  Family family_;
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<tokenizer::Token> marker_tokens_;  // ascending
  std::vector<tokenizer::Token> barred_;         // ascending; no content becomes one of these
  std::vector<std::string> stop_texts_;
};

}  // namespace sluice::chat
