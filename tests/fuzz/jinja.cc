// Chat templates and the conversations that they write: TEMPLATE, VARIABLES (JSON).
#include <algorithm>
#include <string>
#include <vector>

#include "core/chat/bounded_json.h"
#include "core/chat/chat_template.h"
#include "core/chat/jinja/template.h"
#include "core/chat/message_forms.h"
#include "core/error.h"
#include "tests/fuzz/fuzz.h"
#include "tests/temporary_folder.h"

namespace sluice::fuzz {
namespace {

using chat::jinja::Json;

// A rendering ends within its limits, and each byte of its text has an origin.
void render(const chat::jinja::Template& program, const Json& given) {
  std::vector<chat::jinja::Variable> variables;
  for (const auto& [name, value] : given.items()) variables.push_back({name, value});
  chat::jinja::RenderOptions options;
  options.steps_max = 20'000;
  options.memory_bytes_max = std::size_t{4} << 20;
  try {
    const chat::jinja::Text text = program.render(variables, options);
    std::size_t end = 0;
    for (const chat::jinja::Text::Run& run : text.runs()) {
      require(run.end > end, "runs are in order");
      end = run.end;
    }
    require(end == text.size(), "runs cover the text");
  } catch (const chat::jinja::RenderError&) {
  }
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 2);
  const auto given = chat::parse_bounded(parts[1]);
  try {
    const chat::jinja::Template program(parts[0]);
    render(program, given && given->is_object() ? *given : Json::object());
  } catch (const chat::jinja::SyntaxError&) {
    return;
  }
  if (!given || parts[0].size() > 2000) return;
  // What a conversation is made into for a template, whatever is in its place.
  const Json messages = given->is_object() ? given->value("messages", Json::array()) : *given;
  if (!messages.is_array()) return;
  static_cast<void>(chat::with_texts(messages));
  static_cast<void>(chat::with_marked_parts(messages, "mark"));
  static_cast<void>(chat::with_user_parts(messages));
  static_cast<void>(chat::with_joined_systems(messages));
  static_cast<void>(chat::with_numbers(messages));
  static_cast<void>(chat::with_merged_system(messages));
  static_cast<void>(
      chat::adapted(messages, {.knows_developer = false, .wants_argument_texts = true}));
  static_cast<void>(chat::adapted(messages, {}));
  static_cast<void>(chat::find_missing(messages, parts[0]));
}

std::vector<std::string> seeds() {
  const std::string conversation =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": )"
      R"("text", "text": "Hello"}]}, {"role": "assistant", "content": null, "tool_calls": [{"id": )"
      R"("1", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}, {"role": "tool", )"
      R"("content": "2"}], "tools": [{"type": "function", "function": {"name": "f", )"
      R"("parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}], )"
      R"("x": [1, 2.5, "a", null, true, {"k": []}], "add_generation_prompt": true})";
  std::vector<std::string> all;
  const std::string cases = test::content(SLUICE_SOURCE_FOLDER "/tests/jinja_cases.jsonl");
  for (std::size_t at = 0; at < cases.size();) {
    const std::size_t end = std::min(cases.find('\n', at), cases.size());
    const Json row = Json::parse(cases.substr(at, end - at));
    const std::string given = row.contains("variables") ? row["variables"].dump() : conversation;
    all.push_back(joined({row["template"].get<std::string>(), given}));
    at = end + 1;
  }
  return all;
}

}  // namespace sluice::fuzz
