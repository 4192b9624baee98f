// How a conversation is written for a model: the chat formats of the great families of models.
//
// A GGUF file describes its format by a program in a template language (tokenizer.chat_template).
// Here the template's text only tells which family the model belongs to and in which variant; the
// families themselves are written down as data (core/chat/families.h).
//
// What people write cannot become markup: control tokens are taken from the format alone, and a
// message that spells one out is encoded as ordinary text.
//
// A conversation that goes on is never rewritten: the tokens of its first n messages are a prefix
// of the tokens of its first n + 1, and so are they with the generation prompt when an answer
// follows. Keys and values of a conversation thus serve for its continuation. Where a template
// does otherwise (moving the system text to the last message, taking thoughts out of earlier
// answers) it is not followed.
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
  // Of an answer: the tokens that the model made it of, if they are known. They stand for the
  // content, since the tokenizer might choose others for the same text.
  std::vector<tokenizer::Token> tokens = {};
  std::string thought = {};  // of an answer: what came before it
};

class ChatFormat {
 public:
  // `tokenizer` must outlive the format.
  ChatFormat(Family family, const tokenizer::Tokenizer& tokenizer);

  // The format that a template belongs to; throws as recognise_family does.
  static ChatFormat recognise(std::string_view template_text,
                              const tokenizer::Tokenizer& tokenizer) {
    return {recognise_family(template_text), tokenizer};
  }

  const std::string& name() const { return family_.name; }

  // The tokens of a conversation, with BOS where the model wants it. `add_generation_prompt`: what
  // makes the model answer follows. Throws UsageError when a system message is not the first.
  std::vector<tokenizer::Token> encode(std::span<const Message> messages,
                                       bool add_generation_prompt) const;

  // Whether a token ends an answer. Those that end any text of the model do so too.
  bool ends_answer(tokenizer::Token token) const;

  // Texts that end an answer: the markers of the format that are no tokens of this vocabulary.
  const std::vector<std::string>& stop_texts() const { return stop_texts_; }

 private:
  void append(std::span<const tokenizer::TextPart> parts,
              std::vector<tokenizer::Token>& tokens) const;
  void append_answer(const Message& message, std::vector<tokenizer::Token>& tokens) const;
  std::string_view content_of(const Message& message) const;

  Family family_;
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<tokenizer::Token> marker_tokens_;  // ascending
  std::vector<tokenizer::Token> barred_;         // ascending; what a content may never become
  std::vector<std::string> stop_texts_;
};

}  // namespace sluice::chat
