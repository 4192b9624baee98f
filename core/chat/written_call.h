// How a model writes its calls of tools, for those who have it write one: the other side of
// tool_calls.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::chat {

// A call is `open`, the name of the tool, `behind_name`, the arguments, and `close`. Texts have
// control tokens written out.
struct WrittenCall {
  // One object as JSON; or one argument after the other, whose values are the texts themselves
  // where they are texts (tagged), or JSON.
  enum class Arguments : unsigned char { json, tagged, python };
  Arguments arguments = Arguments::json;
  std::string list_open = {}, list_close = {};  // around all calls
  std::string open, behind_name, close;
  std::string separator = {};  // between two calls
  // An argument is `key_open`, its name, `key_close`, the value, `before_close` and `value_close`.
  std::string key_open = {}, key_close = {}, before_close = {}, value_close = {};
  bool may_repeat = true;  // several calls may stand in one answer
  // Of models whose calls follow on thoughts as one message on another; empty in other forms.
  std::string thought_open = {}, thought_close = {};
};

// The form in which the models of a chat template write calls; nothing where none is known.
std::optional<WrittenCall> written_call(std::string_view template_source);

}  // namespace sluice::chat
