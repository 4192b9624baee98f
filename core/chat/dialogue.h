// Conversations with one model: turns what is asked into tokens, and splits the answer into text,
// thoughts and tool calls. Every command uses this.
//
//   const ChatSource source = ChatSource::choose("auto", model.metadata());
//   const DialogueOptions options{.thinking = Thinking::off, .now = template_time()};
//   const Dialogue dialogue(source, tokenizer, options);
//   const DialoguePrompt prompt = dialogue.encode({.messages = messages, .tools = tools});
//   AnswerReader reader(dialogue, prompt.opens_thought, tools);  // feed it the answer's text
//
// The model's own template writes the conversation. For files without one the user names a family,
// and its format (chat_format.h) is used.
//
// Threads: immutable after construction; any number of threads may use one. An AnswerReader is used
// by one thread.
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
#include "core/chat/message_forms.h"
#include "core/chat/prompt_encoder.h"
#include "core/chat/thinking.h"
#include "core/chat/tool_calls.h"
#include "core/chat/written_call.h"

namespace sluice::chat {

// What determines how conversations are written: a template, or else a family. With a template,
// `family` is the family that it was recognised as; it tells how answers end.
struct ChatSource {
  std::shared_ptr<const ChatTemplate> chat_template;
  std::optional<Family> family;

  // `format` is "auto" for the template of the file, or the name of a family. Throws UsageError,
  // with the remedy, when the file has no template, and ModelError when its template cannot be
  // parsed.
  static ChatSource choose(const std::string& format, const gguf::Metadata& metadata);
  // Nothing, with the reason, in place of an error: texts that are no conversations need none.
  static std::optional<ChatSource> find(const std::string& format, const gguf::Metadata& metadata,
                                        std::string& reason);
};

// Whether the model thinks before it answers; automatic: the template decides.
enum class Thinking { automatic, on, off };
// auto, on or off; nothing for another name.
std::optional<Thinking> parse_thinking(std::string_view name);

struct DialogueOptions {
  Thinking thinking = Thinking::automatic;
  std::tm now = {};  // for templates that write the date
};

// A conversation as APIs exchange it: messages [{"role": ..., "content": ...}, ...], where a
// content is a text or a list of parts {"type": "text", "text": ..., ...}; tools, a list or null;
// and more variables for the template, which override those made from the options.
struct DialogueBody {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools = nullptr;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::optional<std::tm> now = {};  // in place of that of the options
};

struct DialoguePrompt {
  std::vector<tokenizer::Token> tokens;
  bool opens_thought = false;  // the answer begins inside of a thought
  std::string warning = {};    // in one line of ASCII: a message that the template leaves out
};

class Dialogue {
 public:
  // `tokenizer` must outlive the dialogue. Throws UsageError when thinking is on and the template
  // does not support it.
  Dialogue(const ChatSource& source, const tokenizer::Tokenizer& tokenizer,
           const DialogueOptions& options);

  // A name for people: "the model's template", "ChatML".
  std::string name() const;

  // The tokens that make the model answer. The conversation is given to the template in a form that
  // it takes (message_forms.h): the role "developer" becomes "system" where the template does not
  // know it, parts become texts where it does not look into them, arguments of calls objects. If it
  // refuses or drops system messages, those at the beginning are joined, and if need be put in
  // front of the first user message. Throws UsageError when the conversation cannot be written, and
  // for a variable that no template mentions.
  DialoguePrompt encode(const DialogueBody& body) const;
  // The same for messages whose answers may be known as tokens; the format of a family uses these.
  DialoguePrompt encode(const Conversation& conversation) const;

  // Whether a token ends an answer; and the texts that end one too.
  bool ends_answer(tokenizer::Token token) const;
  const std::vector<std::string>& stop_texts() const { return stop_texts_; }

  // The text of a token of an answer, for AnswerReader: control tokens that mark thoughts are
  // written out; if there may be tool calls, all control tokens are.
  std::string_view piece(tokenizer::Token token, bool has_tools) const;

  const std::optional<ThinkingForm>& thinking_form() const { return thinking_form_; }
  // The tokens with which a model may begin a thought by itself: those that are not ordinary text
  // and begin the opening mark.
  std::vector<tokenizer::Token> thought_openers() const;
  // The mark of call_marks() that the template uses, where it is a token of its own; nothing:
  // calls of this model cannot be told from an answer by their first token. Looks through the whole
  // vocabulary.
  struct CallMark {
    std::string text;
    std::vector<tokenizer::Token> tokens;
  };
  std::optional<CallMark> call_mark() const;
  // The form in which the model writes calls; nothing: it is not known.
  std::optional<WrittenCall> written_call() const;
  // Whether the template looks at a variable of this name.
  bool knows_variable(std::string_view name) const {
    return template_ && template_->mentions(name);
  }
  // The tokens that end a thought in the model's place.
  std::vector<tokenizer::Token> end_of_thought() const;

 private:
  // The prompt that comes closest so far: no message before `missing` is left out.
  struct Incomplete {
    std::optional<jinja::Text> text = {};
    std::size_t missing = 0;
    std::string role = {};     // of the missing message
    std::string refusal = {};  // why there is no text
  };
  // What a template is given.
  struct Given {
    nlohmann::ordered_json variables;
    std::tm now;
  };
  nlohmann::ordered_json variables_of(const DialogueBody& body) const;
  std::optional<std::size_t> find_left_out(const Given& given, const jinja::Text& prompt) const;
  std::optional<jinja::Text> try_forms(nlohmann::ordered_json messages, std::string_view mark,
                                       Given& given, Incomplete& best) const;
  jinja::Text render(const DialogueBody& body, std::string& warning) const;

  std::shared_ptr<const ChatTemplate> template_;
  std::optional<ChatFormat> format_;
  std::optional<PromptEncoder> encoder_;  // with a template
  std::optional<ThinkingForm> thinking_form_;
  TemplateTraits traits_;
  const tokenizer::Tokenizer* tokenizer_;
  DialogueOptions options_;
  std::vector<std::string> stop_texts_;
};

// Splits an answer while it is generated. How it is cut into pieces does not matter. A call of a
// tool ends a thought that does not end by itself.
class AnswerReader {
 public:
  // `tools` are those of the conversation; null: the answer contains no calls. `call_mark` is as
  // for ToolCallStream. `has_form`: the answer has to keep to a form; it begins where AnswerStart
  // finds it.
  AnswerReader(const Dialogue& dialogue, bool opens_thought, const nlohmann::ordered_json& tools,
               const std::string& call_mark = {}, bool has_form = false);

  // feed() returns the text that is certain after this piece; finish() returns the rest. `end` says
  // whether the model ended the answer by itself.
  SplitText feed(std::string_view piece);
  SplitText finish(AnswerEnd end = AnswerEnd::whole);

  bool is_thinking() const {
    return harmony_ ? harmony_->is_thinking() : splitter_ && splitter_->is_inside();
  }
  const std::vector<ToolCall>& calls() const { return calls_; }  // after finish()

 private:
  SplitText finish_thought(AnswerEnd end);

  std::optional<HarmonyReader> harmony_;       // splits the whole answer by itself
  std::optional<ThinkingSplitter> splitter_;   // otherwise thoughts,
  std::optional<ToolCallStream> call_stream_;  // and calls in what is no thought
  std::vector<ToolCall> calls_;
};

}  // namespace sluice::chat
