// Conversations with one model: what it is asked becomes tokens, and what it answers becomes text,
// thoughts and calls of tools. Every command goes through here.
//
//   const ChatSource source = ChatSource::choose("auto", model.metadata());
//   const Dialogue dialogue(source, tokenizer, {.thinking = Thinking::off, .now =
//   template_time()}); const DialoguePrompt prompt = dialogue.encode({.messages = messages, .tools
//   = tools}); AnswerReader reader(dialogue, prompt.opens_thought, tools);  // is fed the text of
//   the answer
//
// The model's own template writes the conversation. Files without one are written in the format of
// a family (chat_format.h) that somebody has to name.
//
// Threads: immutable after construction; any number of threads may use one. An AnswerReader is used
// by one.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/chat_format.h"
#include "core/chat/chat_template.h"
#include "core/chat/conversation.h"
#include "core/chat/prompt_encoder.h"
#include "core/chat/thinking.h"
#include "core/chat/tool_calls.h"

namespace sluice::chat {

// What says how conversations are written: a template, or else a family. With a template, the
// family is the one that it is recognised as, and tells how answers end.
struct ChatSource {
  std::shared_ptr<const ChatTemplate> chat_template;
  std::optional<Family> family;

  // `format`: "auto" for the template of the file, or the name of a family. Throws UsageError, with
  // the remedy, when the file has no template, and ModelError when it cannot be parsed.
  static ChatSource choose(const std::string& format, const gguf::Metadata& metadata);
};

// Whether the model is to think before it answers; automatic: as its template has it.
enum class Thinking { automatic, on, off };

struct DialogueOptions {
  Thinking thinking = Thinking::automatic;
  std::tm now = {};  // for templates that write the date
};

// A conversation as APIs exchange it: [{"role": ..., "content": ...}, ...], a list or null, and
// further variables of the template, which go before those that the options give.
struct DialogueBody {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools = nullptr;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

struct DialoguePrompt {
  std::vector<tokenizer::Token> tokens;
  bool opens_thought = false;  // the answer goes on within a thought
};

class Dialogue {
 public:
  // `tokenizer` must outlive the dialogue. Throws UsageError when the model is asked to think and
  // its template knows no thoughts.
  Dialogue(const ChatSource& source, const tokenizer::Tokenizer& tokenizer,
           const DialogueOptions& options);

  // For people: "the model's template", "ChatML".
  std::string name() const;

  // The tokens that make the model answer. Where the template refuses system texts, those at the
  // beginning are joined, and then put in front of the first message of the user. Throws UsageError
  // when the conversation cannot be written, and for a variable that no template mentions.
  DialoguePrompt encode(const DialogueBody& body) const;
  // The same for messages whose answers may be known as tokens, which a family's format keeps.
  DialoguePrompt encode(const Conversation& conversation) const;

  // Whether a token ends an answer, and texts that end one besides.
  bool ends_answer(tokenizer::Token token) const;
  const std::vector<std::string>& stop_texts() const { return stop_texts_; }

  // The text of a token of an answer, as AnswerReader wants it: control tokens that mark thoughts
  // are written out, and all of them where there may be calls of tools.
  std::string_view piece(tokenizer::Token token, bool has_tools) const;

  const std::optional<ThinkingForm>& thinking_form() const { return thinking_form_; }
  // What ends a thought in the model's place.
  std::vector<tokenizer::Token> end_of_thought() const;

 private:
  jinja::Text render(const DialogueBody& body) const;

  std::shared_ptr<const ChatTemplate> template_;
  std::optional<ChatFormat> format_;
  std::optional<PromptEncoder> encoder_;  // with a template
  std::optional<ThinkingForm> thinking_form_;
  const tokenizer::Tokenizer* tokenizer_;
  DialogueOptions options_;
  std::vector<std::string> stop_texts_;
};

// Takes an answer apart as it comes.
class AnswerReader {
 public:
  // `tools`: those of the conversation; null: there are no calls in the answer.
  AnswerReader(const Dialogue& dialogue, bool opens_thought, const nlohmann::ordered_json& tools);

  // What is certain after this piece of the answer, and the rest when it has ended.
  SplitText feed(std::string_view piece);
  SplitText finish();

  bool is_thinking() const { return splitter_ && splitter_->is_inside(); }
  const std::vector<ToolCall>& calls() const { return calls_; }  // after finish()

 private:
  std::optional<ThinkingSplitter> splitter_;
  std::optional<ToolCallStream> call_stream_;
  std::vector<ToolCall> calls_;
};

}  // namespace sluice::chat
