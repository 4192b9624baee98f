#include "core/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <utility>

#include "base/number.h"
#include "core/error.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view template_key = "tokenizer.chat_template";
constexpr std::string_view default_name = "default";

// The variables that the transformers library passes, with the keys of their tokens. GGUF files do
// misspell "separator" as in the second key.
constexpr std::array<std::pair<const char*, const char*>, 7> special_token_keys = {
    {{"bos_token", "tokenizer.ggml.bos_token_id"},
     {"eos_token", "tokenizer.ggml.eos_token_id"},
     {"unk_token", "tokenizer.ggml.unknown_token_id"},
     {"sep_token", "tokenizer.ggml.seperator_token_id"},
     {"pad_token", "tokenizer.ggml.padding_token_id"},
     {"cls_token", "tokenizer.ggml.cls_token_id"},
     {"mask_token", "tokenizer.ggml.mask_token_id"}}};

std::vector<jinja::Variable> special_tokens(const gguf::Metadata& metadata) {
  std::vector<jinja::Variable> variables;
  const auto tokens = metadata.find_strings("tokenizer.ggml.tokens");
  if (!tokens) return variables;
  const std::vector<std::string_view> pieces(tokens->begin(), tokens->end());
  for (const auto& [name, key] : special_token_keys) {
    const auto id = metadata.find_int(key);
    if (!id || *id < 0 || static_cast<std::uint64_t>(*id) >= pieces.size()) continue;
    variables.push_back({name, Json(pieces[static_cast<std::size_t>(*id)]), jinja::Origin::markup});
  }
  return variables;
}

// Templates write roles into their markup. A role that is one of these words was chosen by a
// program; any other role is data, like the rest of a message.
bool is_role(std::string_view key, std::string_view text) {
  static constexpr std::array<std::string_view, 14> roles = {
      "system", "user",     "assistant",   "tool",    "developer",     "function",  "ipython",
      "model",  "document", "observation", "context", "tool_response", "tool_call", "tools"};
  return key == "role" && std::ranges::find(roles, text) != roles.end();
}

bool has_tools(const Json& body) {
  const auto tools = body.find("tools");
  return tools != body.end() && !tools->is_null();
}

void check_body(const Json& body) {
  if (!body.is_object()) throw UsageError("a body must be a JSON object with \"messages\"");
  const auto messages = body.find("messages");
  if (messages == body.end() || !messages->is_array()) {
    throw UsageError("a body must have \"messages\", a list");
  }
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::from_metadata(const gguf::Metadata& metadata) {
  ChatTemplate result;
  for (const gguf::Metadata::Entry& entry : metadata.entries()) {
    if (!entry.key.starts_with(template_key)) continue;
    std::string_view name = entry.key.substr(template_key.size());
    if (!name.empty() && name[0] != '.') continue;
    name = name.empty() ? default_name : name.substr(1);
    const std::string_view text = metadata.require_string(entry.key);
    try {
      result.templates_.emplace(name, jinja::Template(text));
      result.sources_ += text;
    } catch (const jinja::SyntaxError& error) {
      throw metadata.error(entry.key, error.what());
    }
  }
  if (result.templates_.empty()) return std::nullopt;
  result.special_tokens_ = special_tokens(metadata);
  return result;
}

ChatTemplate::ChatTemplate(std::string_view text, const std::string& source,
                           const gguf::Metadata* metadata) {
  try {
    templates_.emplace(default_name, jinja::Template(text));
    sources_ = text;
  } catch (const jinja::SyntaxError& error) {
    throw UsageError(fmt::format("{}: {}", source, error.what()));
  }
  if (metadata != nullptr) special_tokens_ = special_tokens(*metadata);
}

const jinja::Template& ChatTemplate::template_for(const Json& body) const {
  const auto tool_use = has_tools(body) ? templates_.find("tool_use") : templates_.end();
  if (tool_use != templates_.end()) return tool_use->second;
  const auto usual = templates_.find(default_name);
  return usual != templates_.end() ? usual->second : templates_.begin()->second;
}

jinja::Text ChatTemplate::render(const Json& body, const std::tm& now) const {
  check_body(body);
  std::vector<jinja::Variable> variables = special_tokens_;
  variables.push_back({"add_generation_prompt", true});
  for (const auto& [name, value] : body.items()) variables.push_back({name, value});
  return template_for(body).render(variables, {.now = now, .is_trusted = is_role});
}

std::tm template_time() {
  std::time_t time = std::time(nullptr);
  std::tm result = {};
  // Nothing in sluice changes the environment.
  const char* fixed = std::getenv("SOURCE_DATE_EPOCH");  // NOLINT(concurrency-mt-unsafe)
  if (fixed == nullptr) {
    ::localtime_r(&time, &result);
    return result;
  }
  const auto seconds = base::whole_number<std::time_t>(fixed);
  if (!seconds) {
    throw UsageError(fmt::format("SOURCE_DATE_EPOCH is '{}'; expected a number of seconds", fixed));
  }
  ::gmtime_r(&*seconds, &result);
  return result;
}

}  // namespace sluice::chat
