#include "core/http/api/response_request.h"

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/quoted.h"

namespace sluice::http {
namespace {

using rows::BadRow;
using rows::find_member;
using rows::RowJson;
using rows::text_of;
using rows::throw_wrong_type;

// Refuses what would ask for something that there is not.
void take_limited(RowJson& body) {
  struct Limited {
    std::string_view name;
    RowJson accepted;  // a list
  };
  static const std::vector<Limited> table = {
      {"background", RowJson::array({false})},
      {"conversation", RowJson::array()},
      {"previous_response_id", RowJson::array()},
      {"prompt", RowJson::array()},
      {"top_logprobs", RowJson::array({0})},
      {"truncation", RowJson::array({"disabled"})},
      // Of chat completions, which have other names or no meaning here.
      {"logprobs", RowJson::array({false})},
      {"max_completion_tokens", RowJson::array()},
      {"max_tokens", RowJson::array()},
      {"messages", RowJson::array()},
      {"n", RowJson::array({1})},
      {"response_format", RowJson::array()},
  };
  for (const Limited& limited : table) {
    const RowJson* value = find_member(body, limited.name);
    if (value != nullptr && std::ranges::find(limited.accepted, *value) == limited.accepted.end()) {
      throw BadRow(
          fmt::format("\"{}\" is not supported in a request for a response", limited.name));
    }
    body.erase(std::string(limited.name));
  }
  // They ask for parts of an answer that there are not, or limit tools that are left aside.
  for (const char* name : {"include", "max_tool_calls", "client_metadata"}) body.erase(name);
}

// Takes a member out of an object; null where there is none.
RowJson take(RowJson& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end()) return nullptr;
  RowJson value = std::move(*found);
  body.erase(found);
  return value;
}

// Moves a member to another name.
void rename(RowJson& body, const char* from, const char* to) {
  const RowJson value = take(body, from);
  if (!value.is_null()) body[to] = value;
}

// The texts of a list of parts, all of the given types, or a text by itself.
std::string text_of_parts(const RowJson& value, std::string_view name,
                          std::initializer_list<std::string_view> types) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw_wrong_type(name, "a string or an array of parts", value);
  std::string text;
  for (const RowJson& part : value) {
    const RowJson* type = part.is_object() ? find_member(part, "type") : nullptr;
    const char* holder = type != nullptr && *type == "refusal" ? "refusal" : "text";
    const RowJson* content = part.is_object() ? find_member(part, holder) : nullptr;
    const bool is_known =
        type != nullptr && type->is_string() && content != nullptr &&
        std::ranges::find(types, std::string_view(type->get_ref<const std::string&>())) !=
            types.end();
    if (!is_known) throw BadRow(fmt::format("\"{}\" has a part that is not a text", name));
    text += text_of(*content, "text");
  }
  return text;
}

// The content of a message that is not the assistant's: parts keep their other members, which some
// chat templates read.
RowJson content_of(const RowJson& value) {
  const std::string text = text_of_parts(value, "content", {"input_text", "output_text", "text"});
  if (value.is_string()) return text;
  RowJson parts = value;
  for (RowJson& part : parts) part["type"] = "text";
  return parts;
}

const RowJson& needed(const RowJson& item, const char* name) {
  if (const RowJson* value = find_member(item, name)) return *value;
  throw BadRow(fmt::format("\"input\" has an item without \"{}\"", name));
}

// Puts the items of "input" together to messages: thoughts and calls stand in the message of the
// assistant that they belong to.
class Messages {
 public:
  void add_content(std::string_view role, RowJson content) {
    list_.push_back({{"role", role}, {"content", std::move(content)}});
  }

  void add(const RowJson& item) {
    if (!item.is_object()) throw_wrong_type("input", "a string or an array of objects", item);
    const RowJson* type_member = find_member(item, "type");
    const std::string type = type_member == nullptr ? "message" : text_of(*type_member, "type");
    if (type == "message") return add_message(item);
    if (type == "reasoning") return add_thought(item);
    if (type == "function_call") return add_call(item);
    if (type == "function_call_output") return add_result(item);
    throw BadRow(fmt::format("\"input\" has an item of type \"{}\", which is not supported",
                             text::escaped(type, 100)));
  }

  RowJson take() { return std::move(list_); }

 private:
  void add_message(const RowJson& item) {
    const std::string role = text_of(needed(item, "role"), "role");
    const RowJson& content = needed(item, "content");
    if (role != "assistant") return add_content(role, content_of(content));
    const std::string text =
        text_of_parts(content, "content", {"input_text", "output_text", "text", "refusal"});
    // A thought opens a message that says nothing yet.
    const bool is_open = !list_.empty() && list_.back()["role"] == "assistant" &&
                         list_.back()["content"] == "" && !list_.back().contains("tool_calls");
    if (is_open) {
      list_.back()["content"] = text;  // behind its thought
    } else {
      add_content(role, text);
    }
  }

  void add_thought(const RowJson& item) {
    const RowJson* content = find_member(item, "content");
    if (content == nullptr) return;  // of another server, which keeps it to itself
    add_content("assistant", "");
    list_.back()["reasoning_content"] = text_of_parts(*content, "content", {"reasoning_text"});
  }

  void add_call(const RowJson& item) {
    if (list_.empty() || list_.back()["role"] != "assistant") add_content("assistant", "");
    list_.back()["tool_calls"].push_back(
        {{"id", needed(item, "call_id")},
         {"type", "function"},
         {"function", {{"name", needed(item, "name")}, {"arguments", needed(item, "arguments")}}}});
  }

  void add_result(const RowJson& item) {
    list_.push_back({{"role", "tool"},
                     {"tool_call_id", needed(item, "call_id")},
                     {"content", text_of_parts(needed(item, "output"), "output", {"input_text"})}});
  }

  RowJson list_ = RowJson::array();
};

RowJson messages_of(const RowJson& instructions, const RowJson& input) {
  Messages messages;
  if (input.is_null()) throw BadRow("\"input\" is missing");
  if (!instructions.is_null())
    messages.add_content("system", text_of(instructions, "instructions"));
  if (input.is_string()) {
    messages.add_content("user", input.get<std::string>());
  } else if (input.is_array()) {
    for (const RowJson& item : input) messages.add(item);
  } else {
    throw_wrong_type("input", "a string or an array of objects", input);
  }
  return messages.take();
}

// Functions stand in the list themselves, and not as a member of their tools. Tools that are no
// functions are the server's own or have a notation of their own; the model is not told of them.
RowJson tools_of(const RowJson& tools) {
  if (!tools.is_array()) throw_wrong_type("tools", "an array", tools);
  RowJson list = RowJson::array();
  for (const RowJson& tool : tools) {
    const RowJson* type = tool.is_object() ? find_member(tool, "type") : nullptr;
    if (type == nullptr) throw BadRow("\"tools\" has a tool without a \"type\"");
    if (*type != "function") continue;
    RowJson function = tool;
    function.erase("type");
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

// {"type": "json_schema", "name": ..., "schema": ...} as "response_format" has it.
RowJson response_format_of(RowJson format) {
  const RowJson* type = format.is_object() ? find_member(format, "type") : nullptr;
  if (type == nullptr || *type != "json_schema") return format;
  const RowJson kind = *type;
  format.erase("type");
  return {{"type", kind}, {"json_schema", std::move(format)}};
}

// Settings that stand in objects of their own.
void take_nested(RowJson& body, bool has_effort) {
  const RowJson text = take(body, "text"), reasoning = take(body, "reasoning");
  if (!text.is_null() && !text.is_object()) throw_wrong_type("text", "an object", text);
  for (const auto& item : text.items()) {
    if (item.key() == "format") {
      body["response_format"] = response_format_of(item.value());
    } else if (item.key() == "verbosity") {
      static_cast<void>(text_of(item.value(), "verbosity"));  // no template knows it
    } else {
      throw BadRow(
          fmt::format("\"text\" has an unknown member \"{}\"", text::escaped(item.key(), 100)));
    }
  }
  if (reasoning.is_null()) return;
  if (!reasoning.is_object()) throw_wrong_type("reasoning", "an object", reasoning);
  const RowJson* effort = find_member(reasoning, "effort");
  if (effort == nullptr) return;
  const std::string level = text_of(*effort, "reasoning_effort");
  if (has_effort) body["reasoning_effort"] = level;
}

}  // namespace

RowJson echo_of(const RowJson& body) {
  RowJson echo = {{"instructions", nullptr},
                  {"max_output_tokens", nullptr},
                  {"metadata", RowJson::object()},
                  {"parallel_tool_calls", true},
                  {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                  {"temperature", nullptr},
                  {"text", {{"format", {{"type", "text"}}}}},
                  {"tool_choice", "auto"},
                  {"tools", RowJson::array()},
                  {"top_p", nullptr}};
  for (const auto& item : echo.items()) {
    if (const RowJson* value = find_member(body, item.key())) item.value() = *value;
  }
  return echo;
}

RowJson chat_body_of(RowJson body, bool has_effort) {
  take_limited(body);
  body["messages"] = messages_of(take(body, "instructions"), take(body, "input"));
  rename(body, "max_output_tokens", "max_completion_tokens");
  if (const RowJson* tools = find_member(body, "tools")) body["tools"] = tools_of(*tools);
  take_nested(body, has_effort);
  return body;
}

std::string with_own_names(std::string message) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"\"max_completion_tokens\"", "\"max_output_tokens\""},
      {"\"messages\"", "\"input\""},
      {"\"reasoning_effort\"", "\"reasoning.effort\""},
      {"\"response_format\"", "\"text.format\""},
      {"\"verbosity\"", "\"text.verbosity\""},
  };
  for (const auto& [theirs, own] : names) {
    if (const auto at = message.find(theirs); at != std::string::npos) {
      message.replace(at, theirs.size(), own);
    }
  }
  return message;
}

}  // namespace sluice::http
