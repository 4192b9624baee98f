// Answers of models as they come: TOOLS (JSON), ANSWER, CHOICES. However an answer is cut into
// pieces, the same text, thoughts and calls come of it.
#include "core/chat/tool_calls.h"

#include <string>
#include <vector>

#include "core/chat/bounded_json.h"
#include "core/chat/harmony.h"
#include "core/chat/python_call.h"
#include "core/chat/thinking.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

using Json = nlohmann::ordered_json;

// What comes of an answer, in one text to be compared.
struct Read {
  std::string thought, answer, calls;
  bool operator==(const Read&) const = default;
};

std::string text_of(const std::vector<chat::ToolCall>& calls) {
  std::string text;
  for (const chat::ToolCall& call : calls) {
    require(call.arguments.is_object(), "arguments are an object");
    text += call.name + call.arguments.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

template <typename Feed>
void feed_pieces(std::string_view answer, Choices choices, const Feed& feed) {
  while (!answer.empty()) feed(choices.piece_of(answer));
}

Read read_calls(std::string_view answer, const Json& tools, const std::string& mark,
                const Choices& choices) {
  chat::ToolCallStream stream(tools, mark);
  Read read;
  feed_pieces(answer, choices, [&](std::string_view piece) { read.answer += stream.feed(piece); });
  const chat::AnswerWithCalls rest = stream.finish();
  read.answer += rest.content;
  read.calls = text_of(rest.calls);
  return read;
}

template <typename Reader>
Read read_split(std::string_view answer, Reader reader, const Choices& choices) {
  Read read;
  const auto add = [&](const chat::SplitText& text) {
    read.thought += text.thought;
    read.answer += text.answer;
  };
  feed_pieces(answer, choices, [&](std::string_view piece) { add(reader.feed(piece)); });
  add(reader.finish());
  if constexpr (requires { reader.calls(); }) read.calls = text_of(reader.calls());
  if constexpr (requires { reader.held(); }) read.calls = reader.held();
  return read;
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 3);
  const Json tools = chat::parse_bounded(parts[0]).value_or(nullptr);
  const std::string_view answer = parts[1];
  Choices pieces(parts[2]);
  const std::size_t mark = pieces.below(4);
  const Choices whole("");
  const auto same = [](const Read& a, const Read& b) {
    require(a == b, "what is read does not depend on how it was cut");
  };
  same(read_calls(answer, tools, "", pieces), read_calls(answer, tools, "", whole));
  same(read_calls(answer, tools, "<tool_call>", pieces),
       read_calls(answer, tools, "<tool_call>", whole));
  const chat::AnswerWithCalls at_once = chat::parse_tool_calls(answer, tools);
  require(text_of(at_once.calls) == read_calls(answer, tools, "", whole).calls,
          "calls in a whole answer are those in its pieces");
  static_cast<void>(chat::parse_python_calls(answer));
  const chat::ThinkingForm form{.open = "<think>", .close = "</think>", .forced_end = ""};
  const chat::ThinkingSplitter splitter(form, mark % 2 != 0,
                                        mark < 2 ? chat::call_marks() : std::vector<std::string>{});
  same(read_split(answer, splitter, pieces), read_split(answer, splitter, whole));
  const chat::HarmonyReader harmony(mark % 2 != 0, mark < 2);
  same(read_split(answer, harmony, pieces), read_split(answer, harmony, whole));
}

std::vector<std::string> seeds() {
  const std::string tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", )"
      R"("properties": {"a": {"type": ["integer", "null"]}, "b": {"$ref": "#/$defs/x"}}, )"
      R"("$defs": {"x": {"type": "string"}}}}}])";
  const std::vector<std::string> answers = {
      R"(Look: <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call> )",
      "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
      R"({"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}})",
      R"([f(a="x", b=[1, 2.5, None], c={'k': "\u00e9\n"}), f()])",
      R"([TOOL_CALLS][{"name": "f", "arguments": {}}])",
      R"([TOOL_CALLS]f[ARGS]{"a": "b"})",
      R"(<|tool_call>call:f{a:<|"|>v<|"|>,b:[1,{c:true}]}<tool_call|>)",
      R"(<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>commentary )"
      R"(to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>)",
      "<think> a thought </think>\n\nanswer <think>",
      "<|python_tag|>f(a=1)",
      R"(<tool_call>{"name": "f", "arguments": "{\"a\": [1]}"}</tool_call><tool_call>)",
      R"(<|tool_call_start|>[f(a=1)]<|tool_call_end|>)"};
  std::vector<std::string> all;
  for (const std::string& answer : answers) {
    all.push_back(joined({tools, answer, "\x05\x01\x03\x02\x09"}));
  }
  return all;
}

}  // namespace sluice::fuzz
