#include "core/chat/call_forms.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/chat/bounded_json.h"
#include "core/chat/python_call.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::vector<ToolCall>;

constexpr std::size_t npos = std::string_view::npos;

bool is_at_mark(const Cursor& cursor) {
  return call_form_of(cursor.rest()) != nullptr;
}

// Ends calls that a mark closes. Models leave it out at the end, and in front of the next call.
bool skip_close(Cursor& cursor, std::string_view close) {
  cursor.skip_space();
  return cursor.skip(close) || cursor.is_end(cursor.at()) || is_at_mark(cursor);
}

// The same for calls that close brackets of their own: they are whole where the answer was cut off,
// too.
bool skip_close_of_brackets(Cursor& cursor, std::string_view close) {
  return skip_close(cursor, close) || cursor.is_at_end();
}

// A call from {"name": ..., "arguments": {...}}, or the same with "parameters". Arguments may be
// JSON within a string. `needs_arguments`: without any it is no call.
bool add_call(const Json& json, bool needs_arguments, Calls& calls) {
  if (!json.is_object()) return false;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return false;
  const Json* given = nullptr;
  for (const char* key : {"arguments", "parameters"}) {
    if (const auto found = json.find(key); found != json.end()) given = &*found;
  }
  if (given == nullptr && needs_arguments) return false;
  Json arguments = given == nullptr || given->is_null() ? Json::object() : *given;
  if (arguments.is_string()) {
    const std::string text = arguments.get<std::string>();
    arguments = trimmed(text).empty() ? Json::object() : parse_bounded(text).value_or(Json());
  }
  if (!arguments.is_object()) return false;
  calls.push_back({name->get<std::string>(), std::move(arguments)});
  return true;
}

// Takes the brackets that come next out of the text; nothing when they do not close.
std::optional<std::string_view> take_brackets(Cursor& cursor, bool with_apostrophes) {
  const std::string_view rest = cursor.rest();
  const Extent extent = bracket_extent(rest, with_apostrophes);
  cursor.look(cursor.at() + extent.bytes);
  if (!extent.is_closed) return std::nullopt;
  cursor.move(extent.bytes);
  return rest.substr(0, extent.bytes);
}

// An object, or a list of objects, that are all calls.
bool read_json_value(Cursor& cursor, bool needs_arguments, Calls& calls) {
  const auto text = take_brackets(cursor, false);
  const std::optional<Json> json = text ? parse_bounded(*text) : std::nullopt;
  if (!json) return false;
  if (!json->is_array()) return add_call(*json, needs_arguments, calls);
  return !json->empty() && std::ranges::all_of(*json, [&](const Json& item) {
    return add_call(item, needs_arguments, calls);
  });
}

// Values one behind the other; Llama 3.1 writes ";" between them.
bool read_json_calls(Cursor& cursor, bool needs_arguments, Calls& calls) {
  while (read_json_value(cursor, needs_arguments, calls)) {
    const std::size_t end = cursor.at();
    cursor.skip_space();
    if (cursor.skip(";")) cursor.skip_space();
    if (cursor.sees("{") || cursor.sees("[{")) continue;
    cursor.move_to(end);
    return true;
  }
  return false;
}

// A call in Python's syntax, or a list of them.
bool read_python_calls(Cursor& cursor, Calls& calls) {
  const std::size_t begin = cursor.at();
  const std::string_view name = cursor.up_to("([{<\"' \n");
  if (cursor.is_at_end() || !(cursor.sees("(") || (name.empty() && cursor.sees("[")))) return false;
  if (!take_brackets(cursor, true)) return false;
  auto found = parse_python_calls(cursor.between(begin, cursor.at()));
  if (!found || found->empty()) return false;
  std::ranges::move(*found, std::back_inserter(calls));
  return true;
}

// JSON or Python, whichever it is.
bool read_literal_calls(Cursor& cursor, bool needs_arguments, Calls& calls) {
  cursor.skip_space();
  if (cursor.sees("{")) return read_json_calls(cursor, needs_arguments, calls);
  Cursor attempt = cursor;
  Calls in_json;
  if (cursor.sees("[") && read_json_calls(attempt, needs_arguments, in_json)) {
    std::ranges::move(in_json, std::back_inserter(calls));
    cursor = attempt;
    return true;
  }
  return read_python_calls(cursor, calls);
}

// Adds an argument; false when there are too many, or it is there already.
bool add_argument(ToolCall& call, std::string_view key, std::string_view value,
                  ToolSchemas& tools) {
  const std::string name(trimmed(key));
  if (call.arguments.size() >= json_members_max || call.arguments.contains(name)) return false;
  call.arguments[name] = tools.value_of(call.name, name, value);
  return true;
}

// --- <function=f><parameter=p>value</parameter></function> ---

// Whether a closing tag of a function, which ends at `position`, really is one: what follows is the
// end or the next function. Outside of <tool_call> anything may follow.
bool ends_function(Cursor& cursor, std::size_t position, bool is_wrapped) {
  if (!is_wrapped) return true;
  position = cursor.behind_space(position);
  return cursor.is_end(position) || cursor.sees_at(position, "</tool_call>") ||
         cursor.sees_at(position, "<tool_call>") || cursor.sees_at(position, "<function=");
}

// Whether a call ends at `position`, and with it the text or at least this block.
bool ends_block(Cursor& cursor, std::size_t position) {
  position = cursor.behind_space(position);
  if (cursor.sees_at(position, "</tool_call>")) position = cursor.behind_space(position + 12);
  return cursor.is_end(position) || cursor.sees_at(position, "<tool_call>");
}

// Reads up to the tag that closes a value. A value may hold the same tag: the one that counts is
// followed by the next parameter or by the end of the call. Models also leave the tag out before
// the end of the function.
std::optional<std::string_view> read_tagged_value(Cursor& cursor, bool is_wrapped) {
  constexpr std::string_view close = "</parameter>", function_close = "</function>";
  const std::size_t begin = cursor.at();
  for (std::size_t at = cursor.find("</", begin); at != npos; at = cursor.find("</", at + 2)) {
    std::size_t behind = at;
    if (cursor.sees_at(at, close)) {
      behind = at + close.size();
      const std::size_t next = cursor.behind_space(behind);
      const bool ends = cursor.is_end(next) || cursor.sees_at(next, "<parameter=") ||
                        (cursor.sees_at(next, function_close) &&
                         ends_function(cursor, next + function_close.size(), is_wrapped)) ||
                        (cursor.sees_at(next, "</tool_call>") && ends_block(cursor, next));
      if (!ends) continue;
    } else if (!cursor.sees_at(at, function_close) ||
               !ends_block(cursor, at + function_close.size())) {
      continue;
    }
    cursor.move_to(behind);
    std::string_view value = cursor.between(begin, at);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    return value;
  }
  return std::nullopt;
}

// The name in an opening tag, behind "<function=" or "<parameter=".
std::optional<std::string_view> read_tag_name(Cursor& cursor) {
  const std::string_view name = trimmed(cursor.up_to("<>\n"));
  if (name.empty() || !cursor.skip(">")) return std::nullopt;
  return name;
}

bool read_tagged_function(Cursor& cursor, bool is_wrapped, ToolSchemas& tools, Calls& calls) {
  const auto name = read_tag_name(cursor);
  if (!name) return false;
  ToolCall call{std::string(*name), Json::object()};
  while (true) {
    cursor.skip_space();
    if (cursor.skip("</function>")) break;
    if (cursor.is_end(cursor.at()) || cursor.sees("</tool_call>")) break;
    if (!cursor.skip("<parameter=")) return false;
    const auto key = read_tag_name(cursor);
    const auto value = key ? read_tagged_value(cursor, is_wrapped) : std::nullopt;
    if (!value || !add_argument(call, *key, *value, tools)) return false;
  }
  calls.push_back(std::move(call));
  return true;
}

bool read_bare_function(Cursor& cursor, ToolSchemas& tools, Calls& calls) {
  if (!read_tagged_function(cursor, false, tools, calls)) return false;
  const std::size_t end = cursor.at();
  cursor.skip_space();
  if (!cursor.skip("</tool_call>")) cursor.move_to(end);
  return true;
}

bool read_wrapped_functions(Cursor& cursor, ToolSchemas& tools, Calls& calls) {
  while (read_tagged_function(cursor, true, tools, calls)) {
    cursor.skip_space();
    if (cursor.skip("<function=")) continue;
    return skip_close(cursor, "</tool_call>");
  }
  return false;
}

// --- f<arg_key>p</arg_key><arg_value>v</arg_value> ---

std::optional<std::string_view> read_glm_value(Cursor& cursor) {
  constexpr std::string_view close = "</arg_value>";
  const std::size_t begin = cursor.at();
  for (std::size_t at = cursor.find(close, begin); at != npos;
       at = cursor.find(close, at + close.size())) {
    const std::size_t next = cursor.behind_space(at + close.size());
    const bool ends = cursor.is_end(next) || cursor.sees_at(next, "<arg_key>") ||
                      cursor.sees_at(next, "</tool_call>");
    if (!ends) continue;
    cursor.move_to(at + close.size());
    return cursor.between(begin, at);
  }
  return std::nullopt;
}

bool read_glm_call(Cursor& cursor, ToolSchemas& tools, Calls& calls) {
  const std::string_view name = trimmed(cursor.up_to("<{["));
  if (name.empty() || name.find_first_of(" \t\n") != npos) return false;
  ToolCall call{std::string(name), Json::object()};
  while (cursor.skip("<arg_key>")) {
    const auto key = cursor.through("</arg_key>");
    cursor.skip_space();
    if (!key || !cursor.skip("<arg_value>")) return false;
    const auto value = read_glm_value(cursor);
    if (!value || !add_argument(call, *key, *value, tools)) return false;
    cursor.skip_space();
  }
  // Without arguments it is a bare word between tags.
  const bool is_call = call.arguments.empty() ? tools.has(name) && cursor.skip("</tool_call>")
                                              : skip_close(cursor, "</tool_call>");
  if (is_call) calls.push_back(std::move(call));
  return is_call;
}

// --- All that stands behind <tool_call> ---

bool read_tagged_calls(Cursor& cursor, ToolSchemas& tools, Calls& calls) {
  cursor.skip_space();
  if (cursor.sees("{") || cursor.sees("[")) {
    return read_json_calls(cursor, false, calls) && skip_close_of_brackets(cursor, "</tool_call>");
  }
  if (!cursor.skip("<function=")) return read_glm_call(cursor, tools, calls);
  Cursor attempt = cursor;
  if (read_wrapped_functions(attempt, tools, calls)) {
    cursor = attempt;
    return true;
  }
  calls.clear();
  cursor.look(attempt.seen());
  if (!cursor.is_whole()) return false;  // its last tag may come yet
  return read_bare_function(cursor, tools, calls);
}

// --- [TOOL_CALLS][{...}]  or  [TOOL_CALLS]f[CALL_ID]i[ARGS]{...} ---

bool read_mistral_calls(Cursor& cursor, ToolSchemas&, Calls& calls) {
  cursor.skip_space();
  if (cursor.sees("[{")) return read_json_calls(cursor, false, calls);
  const std::string_view name = trimmed(cursor.up_to("[{"));
  if (name.empty() || name.find_first_of(" \t\n<\"'") != npos) return false;
  if (cursor.skip("[CALL_ID]")) cursor.up_to("[{");
  const bool has_mark = cursor.skip("[ARGS]");
  cursor.skip_space();
  Json arguments = Json::object();
  if (cursor.sees("{")) {
    const auto text = take_brackets(cursor, false);
    auto json = text ? parse_bounded(*text) : std::nullopt;
    if (!json) return false;
    arguments = *std::move(json);
  } else if (!(cursor.is_end(cursor.at()) || is_at_mark(cursor)) ||
             (!has_mark && name.find_first_not_of(name_characters) != npos)) {
    return false;
  }
  calls.push_back({std::string(name), std::move(arguments)});
  return true;
}

// --- <|tool_call>call:f{p:<|"|>v<|"|>}<tool_call|> ---

// Values are like JSON, but keys have no quotes and texts stand between <|"|>.
class GemmaReader {
 public:
  explicit GemmaReader(Cursor& cursor) : cursor_(cursor) {}

  std::optional<Json> object(std::size_t depth = 0) {
    if (depth > json_depth_max || !cursor_.skip("{")) return std::nullopt;
    Json result = Json::object();
    for (cursor_.skip_space(); !cursor_.skip("}"); skip_comma()) {
      const auto key = cursor_.through(":");
      if (!key || result.size() >= json_members_max) return std::nullopt;
      auto item = value(depth + 1);
      const std::string name(trimmed(*key));
      if (!item || result.contains(name)) return std::nullopt;
      result[name] = *std::move(item);
    }
    return result;
  }

 private:
  void skip_comma() {
    cursor_.skip_space();
    cursor_.skip(",");
    cursor_.skip_space();
  }

  std::optional<Json> list(std::size_t depth) {
    if (depth > json_depth_max) return std::nullopt;
    Json result = Json::array();
    for (cursor_.skip_space(); !cursor_.skip("]"); skip_comma()) {
      auto item = value(depth + 1);
      if (!item) return std::nullopt;
      result.push_back(*std::move(item));
    }
    return result;
  }

  std::optional<Json> value(std::size_t depth) {
    cursor_.skip_space();
    if (cursor_.skip("<|\"|>")) {
      const auto text = cursor_.through("<|\"|>");
      return text ? std::optional<Json>(*text) : std::nullopt;
    }
    if (cursor_.skip("[")) return list(depth);
    if (cursor_.sees("{")) return object(depth);
    const std::string_view bare = trimmed(cursor_.up_to(",]}"));
    if (bare.empty() || cursor_.is_at_end()) return std::nullopt;
    auto parsed = parse_bounded(bare);
    return parsed && !parsed->is_string() ? std::move(parsed) : std::optional<Json>(bare);
  }

  Cursor& cursor_;
};

bool read_gemma_call(Cursor& cursor, ToolSchemas&, Calls& calls) {
  cursor.skip_space();
  if (!cursor.skip("call:")) return false;
  const std::string_view name = trimmed(cursor.up_to("{<\n"));
  auto arguments = GemmaReader(cursor).object();
  if (!arguments || name.empty()) return false;
  calls.push_back({std::string(name), *std::move(arguments)});
  return skip_close_of_brackets(cursor, "<tool_call|>");
}

// --- [f(p="v")] or JSON behind a mark ---

bool read_lfm_calls(Cursor& cursor, ToolSchemas&, Calls& calls) {
  return read_literal_calls(cursor, false, calls) &&
         skip_close_of_brackets(cursor, "<|tool_call_end|>");
}

bool read_llama_calls(Cursor& cursor, ToolSchemas&, Calls& calls) {
  if (!read_literal_calls(cursor, false, calls)) return false;
  cursor.skip_space();
  return cursor.is_at_end() || is_at_mark(cursor);
}

constexpr std::array<CallForm, 6> forms = {{{"<tool_call>", read_tagged_calls},
                                            {"<function=", read_bare_function},
                                            {"<|tool_call>", read_gemma_call},
                                            {"<|tool_call_start|>", read_lfm_calls},
                                            {"[TOOL_CALLS]", read_mistral_calls},
                                            {"<|python_tag|>", read_llama_calls}}};

}  // namespace

void Cursor::skip_space() {
  move_to(behind_space(at_));
}

bool Cursor::skip(std::string_view mark) {
  if (!sees(mark)) return false;
  move(mark.size());
  return true;
}

std::string_view Cursor::up_to(std::string_view stops) {
  const std::size_t begin = at_;
  move_to(std::min(text_.find_first_of(stops, at_), text_.size()));
  return between(begin, at_);
}

std::optional<std::string_view> Cursor::through(std::string_view close) {
  const std::size_t begin = at_;
  const std::size_t end = find(close, at_);
  if (end == npos) return std::nullopt;
  move_to(end + close.size());
  return between(begin, end);
}

std::size_t Cursor::find(std::string_view mark, std::size_t position) {
  const std::size_t found = text_.find(mark, position);
  look(std::min(found, text_.size()));
  return found;
}

std::size_t Cursor::behind_space(std::size_t position) {
  const std::size_t behind = std::min(text_.find_first_not_of(white_space, position), text_.size());
  look(behind);
  return behind;
}

std::span<const CallForm> call_forms() {
  return forms;
}

const CallForm* call_form_of(std::string_view text) {
  const auto found = std::ranges::find_if(
      forms, [text](const CallForm& form) { return text.starts_with(form.mark); });
  return found == forms.end() ? nullptr : &*found;
}

bool read_unmarked_calls(std::string_view answer, const ToolSchemas& tools, Calls& calls) {
  Cursor cursor(answer, 0, AnswerEnd::whole);
  cursor.skip_space();
  if (!cursor.sees("{") && !cursor.sees("[")) return false;
  if (!read_literal_calls(cursor, true, calls)) return false;
  cursor.skip_space();
  return cursor.is_at_end() &&
         std::ranges::all_of(calls, [&](const ToolCall& call) { return tools.has(call.name); });
}

}  // namespace sluice::chat
