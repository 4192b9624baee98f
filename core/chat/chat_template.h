// The chat template that a model file brings, and what it makes of a conversation.
//
//   const auto chat_template = ChatTemplate::from_metadata(model.metadata());
//   const jinja::Text prompt = chat_template->render(body, now);
//   const std::vector<Token> tokens = PromptEncoder(tokenizer, *chat_template).encode(prompt);
//
// A body is JSON as APIs exchange it: "messages", "tools", "add_generation_prompt", and whatever
// else the template asks for ("enable_thinking", "documents", ...).
//
// What people write cannot become markup. Each byte of the prompt has an origin (jinja::Text):
// control tokens are found in what the template wrote, and never in what came from the body.
//
// Threads: immutable after construction; any number of threads may use one.
#pragma once

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/jinja/template.h"
#include "core/gguf/metadata.h"

namespace sluice::chat {

class ChatTemplate {
 public:
  // The templates under tokenizer.chat_template and tokenizer.chat_template.NAME, with the special
  // tokens of the vocabulary as their variables (bos_token, eos_token, ...). Nothing when the file
  // has no template. Throws ModelError, which names the key and the line, when one cannot be
  // parsed.
  static std::optional<ChatTemplate> from_metadata(const gguf::Metadata& metadata);

  // One template, given as text; the special tokens are those of `metadata` if there is one. Throws
  // UsageError, which names `source` and the line, when it cannot be parsed.
  ChatTemplate(std::string_view text, const std::string& source, const gguf::Metadata* metadata);

  // The prompt of a body. A template with the name `tool_use` is preferred when the body has tools.
  // Variables that the body does not have are undefined, but `add_generation_prompt` is true.
  // Throws UsageError when the body has no list of messages, and jinja::RenderError, which names
  // the line and the construct, when the template refuses the body.
  jinja::Text render(const nlohmann::ordered_json& body, const std::tm& now) const;

  const std::string& sources() const { return sources_; }  // of all templates, joined
  // Whether a template has this text in its source.
  bool mentions(std::string_view text) const { return sources_.find(text) != std::string::npos; }

 private:
  ChatTemplate() = default;
  const jinja::Template& template_for(const nlohmann::ordered_json& body) const;

  std::map<std::string, jinja::Template, std::less<>> templates_;  // "default", "tool_use", ...
  std::string sources_;                                            // of all templates
  std::vector<jinja::Variable> special_tokens_;
};

// The time that templates are told: that of the environment variable SOURCE_DATE_EPOCH, in UTC, if
// it is set, or else the local time of now. Throws UsageError when the variable is no number.
std::tm template_time();

}  // namespace sluice::chat
