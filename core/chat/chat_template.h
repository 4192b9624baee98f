// The chat template of a model file, which turns a conversation into a prompt.
//
//   const auto chat_template = ChatTemplate::from_metadata(model.metadata());
//   const jinja::Text prompt = chat_template->render(body, now);
//   const std::vector<Token> tokens = PromptEncoder(tokenizer, *chat_template).encode(prompt);
//
// A body is JSON as APIs exchange it: "messages", "tools", "add_generation_prompt", and any other
// variable of the template ("enable_thinking", "documents", ...).
//
// What people write cannot become markup. Each byte of the prompt has an origin (jinja::Text):
// control tokens are recognised in what the template wrote, never in what came from the body.
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
  // Loads the templates under tokenizer.chat_template and tokenizer.chat_template.NAME. The special
  // tokens of the vocabulary become variables (bos_token, eos_token, ...). Nothing when the file
  // has no template. Throws ModelError, with the key and the line, when one cannot be parsed.
  static std::optional<ChatTemplate> from_metadata(const gguf::Metadata& metadata);

  // A template given as text, with the special tokens of `metadata` if that is not null. Throws
  // UsageError, with `source` and the line, when it cannot be parsed.
  ChatTemplate(std::string_view text, const std::string& source, const gguf::Metadata* metadata);

  // Renders a body as a prompt. If the body has tools, a template named `tool_use` is preferred.
  // Variables that the body does not have are undefined, except that `add_generation_prompt` is
  // true. Throws UsageError when the body has no list of messages, and jinja::RenderError, with the
  // line and the construct, when the template refuses the body.
  jinja::Text render(const nlohmann::ordered_json& body, const std::tm& now) const;

  const std::string& sources() const { return sources_; }  // of all templates, joined
  // Whether the source of a template contains this text.
  bool mentions(std::string_view text) const { return sources_.find(text) != std::string::npos; }

 private:
  ChatTemplate() = default;
  const jinja::Template& template_for(const nlohmann::ordered_json& body) const;

  std::map<std::string, jinja::Template, std::less<>> templates_;  // "default", "tool_use", ...
  std::string sources_;                                            // of all templates
  std::vector<jinja::Variable> special_tokens_;
};

// The time for templates: the environment variable SOURCE_DATE_EPOCH, in UTC, if it is set,
// otherwise the present local time. Throws UsageError when the variable is not a number.
std::tm template_time();

}  // namespace sluice::chat
