#include "core/chat/tool_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/chat/python_call.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::optional<std::vector<ToolCall>>;  // nothing: the text is not a call

// What opens calls, and what closes them if they end before the answer does.
struct Brackets {
  std::string_view open;
  std::string_view close;  // empty: the end of the answer
};
constexpr std::array<Brackets, 7> brackets = {{{"<tool_call>", "</tool_call>"},
                                               {"<function=", "</function>"},
                                               {"<|tool_call>", "<tool_call|>"},
                                               {"<|tool_call_start|>", "<|tool_call_end|>"},
                                               {"<|channel|>commentary to=", "<|call|>"},
                                               {"[TOOL_CALLS]", ""},
                                               {"<|python_tag|>", ""}}};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(white_space), text.size());
  const std::size_t end = text.find_last_not_of(white_space) + 1;
  return end > begin ? text.substr(begin, end - begin) : std::string_view();
}

// Returns the part between `open`, from `at` on, and `close`, and moves `at` behind it.
std::optional<std::string_view> between(std::string_view text, std::size_t& at,
                                        std::string_view open, std::string_view close) {
  const std::size_t begin = text.find(open, at);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = text.find(close, begin + open.size());
  if (end == std::string_view::npos) return std::nullopt;
  at = end + close.size();
  return text.substr(begin + open.size(), end - begin - open.size());
}

Json parsed(std::string_view text) {
  return Json::parse(text, nullptr, false);
}

// The type of a parameter in a tool's schema; empty if it has none.
std::string type_of(const Json& tools, std::string_view function, std::string_view parameter) {
  if (!tools.is_array()) return "";
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& definition = tool.contains("function") ? tool["function"] : tool;
    if (!definition.is_object() || definition.value("name", Json()) != function) continue;
    const Json schema =
        definition.value(Json::json_pointer("/parameters/properties"), Json::object());
    const auto found = schema.find(std::string(parameter));
    if (found == schema.end() || !found->is_object()) return "";
    const Json type = found->value("type", Json());
    return type.is_string() ? type.get<std::string>() : "";
  }
  return "";
}

// A value written without quotes: JSON, unless the parameter is a text.
Json bare_value(std::string_view text, const std::string& type) {
  if (type == "string") return text;
  Json value = parsed(trimmed(text));
  const bool is_value = !value.is_discarded() && (!value.is_string() || !type.empty());
  return is_value ? value : Json(text);
}

// A call from {"name": ..., "arguments": {...}}, or the same with "parameters". Arguments may be
// JSON within a string.
std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  Json arguments = Json::object();
  for (const char* key : {"arguments", "parameters"}) {
    if (json.contains(key)) arguments = json[key];
  }
  if (arguments.is_string()) arguments = parsed(arguments.get_ref<const std::string&>());
  if (arguments.is_null()) arguments = Json::object();
  if (!arguments.is_object()) return std::nullopt;
  return ToolCall{name->get<std::string>(), std::move(arguments)};
}

Calls calls_of(const Json& json) {
  std::vector<ToolCall> calls;
  for (const Json& item : json.is_array() ? json : Json::array({json})) {
    auto call = call_of(item);
    if (!call) return std::nullopt;
    calls.push_back(*std::move(call));
  }
  return calls;
}

// The form of Llama 3.1: objects with ";" between them.
Calls parse_json_calls(std::string_view text) {
  if (Json json = parsed(text); !json.is_discarded()) return calls_of(json);
  std::vector<ToolCall> calls;
  std::size_t begin = 0;
  for (std::size_t at = text.find(';'); begin < text.size(); at = text.find(';', at + 1)) {
    const std::size_t end = std::min(at, text.size());
    const Json json = parsed(text.substr(begin, end - begin));
    if (auto call = call_of(json)) {
      calls.push_back(*std::move(call));
      begin = end + 1;
    } else if (end == text.size()) {
      return std::nullopt;
    }
    if (end == text.size()) break;
  }
  return calls;
}

// function=NAME> <parameter=KEY>VALUE</parameter> ...
Calls parse_xml_call(std::string_view text, const Json& tools) {
  std::size_t at = 0;
  const auto name = between(text, at, "<function=", ">");
  if (!name || name->find('<') != std::string_view::npos) return std::nullopt;
  ToolCall call{std::string(trimmed(*name)), Json::object()};
  while (const auto key = between(text, at, "<parameter=", ">")) {
    const auto stop = std::min(text.find("</parameter>", at), text.find("</function>", at));
    if (stop == std::string_view::npos) return std::nullopt;
    std::string_view value = text.substr(at, stop - at);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    call.arguments[std::string(trimmed(*key))] =
        bare_value(value, type_of(tools, call.name, trimmed(*key)));
    at = stop;
  }
  return std::vector{std::move(call)};
}

Calls parse_glm_call(std::string_view text, const Json& tools) {
  std::size_t at = 0;
  const std::size_t keys = std::min(text.find("<arg_key>"), text.size());
  ToolCall call{std::string(trimmed(text.substr(0, keys))), Json::object()};
  if (call.name.empty() || call.name.find_first_of(" \n{<") != std::string::npos) {
    return std::nullopt;
  }
  while (const auto key = between(text, at, "<arg_key>", "</arg_key>")) {
    const auto value = between(text, at, "<arg_value>", "</arg_value>");
    if (!value) return std::nullopt;
    call.arguments[std::string(trimmed(*key))] =
        bare_value(*value, type_of(tools, call.name, trimmed(*key)));
  }
  return std::vector{std::move(call)};
}

// `is_closed`: the closing tag is there. Without it a bare word is not a call.
Calls parse_tagged_call(std::string_view text, bool is_closed, const Json& tools) {
  text = trimmed(text);
  if (text.starts_with('{') || text.starts_with('[')) return parse_json_calls(text);
  if (text.starts_with("<function=")) return parse_xml_call(text, tools);
  const bool is_call = is_closed || text.find("<arg_key>") != std::string_view::npos;
  return is_call ? parse_glm_call(text, tools) : std::nullopt;
}

// [TOOL_CALLS][{...}], or NAME[ARGS]{...}, repeated after another [TOOL_CALLS].
Calls parse_mistral_calls(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('[')) return parse_json_calls(text);
  std::vector<ToolCall> calls;
  constexpr std::string_view marker = "[TOOL_CALLS]";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(marker), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + marker.size(), text.size()));
    const std::size_t brace = std::min(one.find('{'), one.size());
    const std::string_view name = trimmed(one.substr(0, std::min(one.find('['), brace)));
    Json arguments = brace < one.size() ? parsed(one.substr(brace)) : Json::object();
    if (name.empty() || !arguments.is_object()) return std::nullopt;
    calls.push_back({std::string(name), std::move(arguments)});
  }
  return calls;
}

// Parses the values of Gemma 4: like JSON, but keys have no quotes and texts stand between <|"|>.
class GemmaParser {
 public:
  explicit GemmaParser(std::string_view text) : rest_(text) {}

  std::optional<Json> object() {
    if (!skip("{")) return std::nullopt;
    Json result = Json::object();
    while (!skip("}")) {
      const std::size_t colon = rest_.find(':');
      if (colon == std::string_view::npos || ++depth_ > 50) return std::nullopt;
      const std::string key(trimmed(rest_.substr(0, colon)));
      rest_.remove_prefix(colon + 1);
      auto item = value();
      --depth_;
      if (!item) return std::nullopt;
      result[key] = *std::move(item);
      skip(",");
    }
    return result;
  }

 private:
  static constexpr std::string_view quote = "<|\"|>";

  bool skip(std::string_view text) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(white_space), rest_.size()));
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::optional<Json> list() {
    Json result = Json::array();
    while (!skip("]")) {
      if (rest_.empty() || ++depth_ > 50) return std::nullopt;
      auto item = value();
      --depth_;
      if (!item) return std::nullopt;
      result.push_back(*std::move(item));
      skip(",");
    }
    return result;
  }

  std::optional<Json> value() {
    if (skip(quote)) {
      const std::size_t end = rest_.find(quote);
      if (end == std::string_view::npos) return std::nullopt;
      Json text = rest_.substr(0, end);
      rest_.remove_prefix(end + quote.size());
      return text;
    }
    if (skip("[")) return list();
    if (rest_.starts_with('{')) return object();
    const std::size_t end = rest_.find_first_of(",]}");
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view bare = trimmed(rest_.substr(0, end));
    if (bare.empty()) return std::nullopt;
    rest_.remove_prefix(end);
    return bare_value(bare, "");
  }

  std::string_view rest_;
  int depth_ = 0;
};

Calls parse_gemma_call(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with("call:")) return std::nullopt;
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos) return std::nullopt;
  const std::string_view name = trimmed(text.substr(5, brace - 5));
  auto arguments = GemmaParser(text.substr(brace)).object();
  if (!arguments || name.empty()) return std::nullopt;
  return std::vector<ToolCall>{{std::string(name), *std::move(arguments)}};
}

// functions.NAME <|constrain|>json<|message|>{...}
Calls parse_harmony_call(std::string_view text) {
  constexpr std::string_view message = "<|message|>";
  const std::size_t at = text.find(message);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view name = text.substr(0, std::min(text.find_first_of(" <"), at));
  if (name.starts_with("functions.")) name.remove_prefix(10);
  Json arguments = parsed(text.substr(at + message.size()));
  if (name.empty() || !arguments.is_object()) return std::nullopt;
  return std::vector<ToolCall>{{std::string(name), std::move(arguments)}};
}

Calls parse_between(const Brackets& pair, std::string_view inner, bool is_closed,
                    const Json& tools) {
  if (pair.open == "<tool_call>") return parse_tagged_call(inner, is_closed, tools);
  if (pair.open == "<function=") {
    return parse_xml_call(std::string(pair.open) + std::string(inner) + "</function>", tools);
  }
  if (pair.open == "<|tool_call>") return parse_gemma_call(inner);
  if (pair.open == "[TOOL_CALLS]") return parse_mistral_calls(inner);
  if (pair.open == "<|channel|>commentary to=") return parse_harmony_call(inner);
  inner = trimmed(inner);
  Calls calls = parse_json_calls(inner);
  return calls ? calls : parse_python_calls(inner);
}

// Parses a text that consists of nothing but calls.
Calls parse_whole(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('{')) return parse_json_calls(text);
  if (!text.starts_with('[')) return std::nullopt;
  const Json json = parsed(text);
  if (!json.is_discarded()) return json.empty() ? std::nullopt : calls_of(json);
  return parse_python_calls(text);
}

// The first bracket that opens at or after `at`.
const Brackets* next_bracket(std::string_view text, std::size_t& at) {
  const Brackets* best = nullptr;
  std::size_t first = text.size();
  for (const Brackets& pair : brackets) {
    const std::size_t found = text.find(pair.open, at);
    if (found < first) {
      first = found;
      best = &pair;
    }
  }
  at = first;
  return best;
}

std::vector<std::string> opening_markers() {
  std::vector<std::string> markers;
  markers.reserve(brackets.size());
  for (const Brackets& pair : brackets) markers.emplace_back(pair.open);
  return markers;
}

}  // namespace

const std::vector<std::string>& call_marks() {
  static const std::vector<std::string> marks = {"<tool_call>", "<|tool_call>",
                                                 "<|tool_call_start|>", "[TOOL_CALLS]"};
  return marks;
}

AnswerWithCalls parse_tool_calls(std::string_view answer, const Json& tools) {
  AnswerWithCalls result;
  if (auto calls = parse_whole(answer)) {
    result.calls = *std::move(calls);
    return result;
  }
  std::size_t kept = 0;  // everything before is already in the content or in a call
  std::size_t at = 0;
  while (const Brackets* pair = next_bracket(answer, at)) {
    const std::size_t inner = at + pair->open.size();
    const std::size_t close = pair->close.empty() ? answer.size() : answer.find(pair->close, inner);
    const std::size_t end = std::min(close, answer.size());
    const bool is_closed = close != std::string_view::npos;
    Calls calls = parse_between(*pair, answer.substr(inner, end - inner), is_closed, tools);
    if (calls && !calls->empty()) {
      std::ranges::move(*calls, std::back_inserter(result.calls));
      result.content += answer.substr(kept, at - kept);
      kept = std::min(end + pair->close.size(), answer.size());
      at = kept;
    } else {
      at = inner;
    }
  }
  result.content += answer.substr(kept);
  if (!result.calls.empty()) result.content = trimmed(result.content);
  return result;
}

ToolCallStream::ToolCallStream(Json tools, std::string mark)
    : tools_(std::move(tools)), mark_(std::move(mark)), scanner_(opening_markers()) {}

std::string ToolCallStream::feed(std::string_view piece) {
  return mark_.empty() ? take(scanner_.feed(piece)) : take_beginning(piece);
}

// Decides, as soon as it can, whether the answer is content or a call.
std::string ToolCallStream::take_beginning(std::string_view piece) {
  if (is_content_) return std::string(piece);
  held_ += piece;
  if (is_call_) return {};
  const std::size_t begin = std::min(held_.find_first_not_of(white_space), held_.size());
  const std::string_view seen = std::string_view(held_).substr(begin);
  is_call_ = seen.starts_with(mark_);
  is_content_ = !is_call_ && !mark_.starts_with(seen);
  return is_content_ ? std::exchange(held_, {}) : std::string();
}

// An answer that begins with a bracket may be a call as a whole; any other answer may have a call
// behind a marker. White space in front of a call belongs to the call.
std::string ToolCallStream::take(const std::vector<MarkerScanner::Event>& events) {
  std::string content;
  for (const MarkerScanner::Event& event : events) {
    if (event.marker) is_call_ = true;
    held_ += event.marker ? std::string(brackets[*event.marker].open) : event.text;
    if (is_call_) continue;
    const std::string_view seen = trimmed(held_);
    if (!has_content_ && (seen.starts_with('{') || seen.starts_with('['))) {
      is_call_ = true;
    } else if (!seen.empty()) {
      const std::size_t end = held_.find_last_not_of(white_space) + 1;
      content += held_.substr(0, end);
      held_.erase(0, end);
      has_content_ = true;
    }
  }
  return content;
}

AnswerWithCalls ToolCallStream::finish() {
  if (!mark_.empty() && !is_call_) return {std::exchange(held_, {}), {}};
  std::string content = take(scanner_.finish());
  AnswerWithCalls rest = parse_tool_calls(std::exchange(held_, {}), tools_);
  rest.content.insert(0, content);
  return rest;
}

}  // namespace sluice::chat
