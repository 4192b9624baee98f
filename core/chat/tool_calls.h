// Finds the tool calls in a model's answer.
//
//   <tool_call>{"name": ..., "arguments": {...}}</tool_call>      Hermes, Qwen, SmolLM, Granite 4
//   <tool_call><function=f><parameter=p>v</parameter></function>  Qwen3-Coder, Qwen 3.5, Nemotron 3
//   <tool_call>f<arg_key>p</arg_key><arg_value>v</arg_value>      GLM 4.5 and later
//   {"name": ..., "parameters": {...}}                            Llama 3.1; ";" between several
//   [f(p="v"), g()]                                               Llama 3.2 and 4; LFM2 in tags
//   [TOOL_CALLS][{"name": ...}]  or  [TOOL_CALLS]f[ARGS]{...}     Mistral
//   <|tool_call>call:f{p:<|"|>v<|"|>}<tool_call|>                 Gemma 4
//
// (Those of gpt-oss stand in messages of their own: core/chat/harmony.h.)
//
// The texts are those of the tokens with control tokens written out. A call that cannot be parsed
// stays in the answer: nothing that the model wrote is lost. A call without a mark counts only as
// the whole answer, if it has arguments and names one of the tools: an answer in JSON may well have
// a "name". What looks like a closing mark does not end a call while it stands inside of a string,
// or of a value that goes on.
//
// The time is linear in the answer, and nothing is thrown, whatever tools and answer hold.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/marker_scanner.h"

namespace sluice::chat {

struct ToolCall {
  std::string name;
  nlohmann::ordered_json arguments;  // an object
};

// The marks that begin a call and say clearly that it is one, of those above: not harmony's, which
// stands between messages, nor those of calls that may come without any.
const std::vector<std::string>& call_marks();

// The same and those that begin a call where it is one.
const std::vector<std::string>& possible_call_marks();

// Whether the model ended its answer. One that was cut off, or is still being written, may go on:
// its end closes neither a call nor a value of one.
enum class AnswerEnd { whole, cut };

struct AnswerWithCalls {
  std::string content;  // without the calls, and without the white space around them
  std::vector<ToolCall> calls;
};

// Finds the calls in a whole answer. `tools` are the tools of the conversation, or null; their
// schemas say what type a value has where the form of the call does not.
AnswerWithCalls parse_tool_calls(std::string_view answer, const nlohmann::ordered_json& tools,
                                 AnswerEnd end = AnswerEnd::whole);

// The same for an answer that arrives in pieces: returns text as soon as it cannot be part of a
// call. All content together, and the calls, do not depend on how the answer is cut.
class ToolCallStream {
 public:
  // `mark`: the answer has calls only if it begins with this, and none otherwise; empty: calls may
  // be anywhere, as parse_tool_calls() finds them.
  explicit ToolCallStream(nlohmann::ordered_json tools, std::string mark = {});

  std::string feed(std::string_view piece);  // content that is certain
  // The rest of the content, and the calls.
  AnswerWithCalls finish(AnswerEnd end = AnswerEnd::whole);

  // Where the first call with a mark begins in another text, if it has any.
  std::optional<std::size_t> first_call_in(std::string_view text, AnswerEnd end) const;

 private:
  std::string take(const std::vector<MarkerScanner::Event>& events);
  void take_text(std::string_view text, std::string& content);
  void add_content(std::string_view text, std::string& content);

  nlohmann::ordered_json tools_;
  std::string mark_;
  std::vector<std::string> marks_;
  MarkerScanner scanner_;
  std::string space_;         // white space behind the content so far; it may belong to a call
  bool has_content_ = false;  // something other than white space came
  bool is_call_ = false;      // everything from here on is held back, as it may be calls
  std::string held_;
};

}  // namespace sluice::chat
