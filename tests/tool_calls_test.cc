// Calls of tools and thoughts in the answers of models: each form, cut into pieces anywhere, and
// texts that only look like one.
#include "core/chat/tool_calls.h"

#include <set>
#include <string>

#include "core/chat/thinking.h"
#include "tests/catch.h"

namespace {

using namespace sluice::chat;
using Json = nlohmann::ordered_json;

const Json& tools() {
  static const Json list = Json::parse(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": {"text": {"type": "string"},
      "n": {"type": "integer"}, "list": {"type": "array"}}}}},
      {"type": "function", "function": {"name": "m.g"}}, {"name": "now"}])");
  return list;
}

// The calls as "name{arguments}", one behind the other, behind the content.
std::string summary(const AnswerWithCalls& answer) {
  std::string text = answer.content;
  for (const ToolCall& call : answer.calls) text += "|" + call.name + call.arguments.dump();
  return text;
}

// The same of the whole answer and of all ways to cut it in two; they must agree.
std::string summary_of(const std::string& answer) {
  std::string whole = summary(parse_tool_calls(answer, tools()));
  for (std::size_t cut = 0; cut <= answer.size(); ++cut) {
    ToolCallStream stream(tools());
    std::string content = stream.feed(answer.substr(0, cut));
    content += stream.feed(answer.substr(cut));
    AnswerWithCalls rest = stream.finish();
    rest.content.insert(0, content);
    INFO(answer << " cut at " << cut);
    CHECK(summary(rest) == whole);
  }
  return whole;
}

}  // namespace

TEST_CASE("calls in JSON between tags") {
  CHECK(summary_of("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>") ==
        "|f{\"n\":1}");
  CHECK(
      summary_of("I look.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n"
                 "<tool_call>{\"name\": \"g\", \"arguments\": \"{\\\"a\\\": [1]}\"}</tool_call>") ==
      "I look.|f{}|g{\"a\":[1]}");
  CHECK(summary_of("<tool_call>{\"name\": \"f\"}") == "|f{}");
}

TEST_CASE("a number of a call is the one that is written, or the call stays a text") {
  const auto json_call = [](const std::string& number) {
    return "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": " + number + "}}</tool_call>";
  };
  for (const std::string number :
       {"9223372036854775808", "18446744073709551615", "-9223372036854775808"}) {
    CHECK(summary_of(json_call(number)) == "|f{\"n\":" + number + "}");
  }
  for (const std::string number : {"18446744073709551616", "-9223372036854775809",
                                   "123456789012345678901234567890", "1e400", "007"}) {
    CHECK(summary_of(json_call(number)) == json_call(number));
    const std::string python = "<|tool_call_start|>[f(n=" + number + ")]<|tool_call_end|>";
    CHECK(summary_of(python) == python);
    CHECK(summary_of("<function=f><parameter=n>" + number + "</parameter></function>") ==
          "|f{\"n\":\"" + number + "\"}");
  }
  CHECK(summary_of(json_call("1e-400")) == "|f{\"n\":0.0}");
  CHECK(summary_of("<|tool_call_start|>[f(n=1e-400)]<|tool_call_end|>") == "|f{\"n\":0.0}");
}

TEST_CASE("an answer that has to begin with a mark to have calls") {
  const auto summary_with_mark = [](const std::string& answer) {
    std::set<std::string> seen;
    for (std::size_t cut = 0; cut <= answer.size(); ++cut) {
      ToolCallStream stream(tools(), "<tool_call>");
      std::string content = stream.feed(answer.substr(0, cut));
      content += stream.feed(answer.substr(cut));
      AnswerWithCalls rest = stream.finish();
      rest.content.insert(0, content);
      seen.insert(summary(rest));
    }
    REQUIRE(seen.size() == 1);
    return *seen.begin();
  };
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  CHECK(summary_with_mark(call) == "|f{}");
  CHECK(summary_with_mark("\n" + call + call) == "|f{}|f{}");
  for (const std::string& text :
       {std::string("{\"name\": \"f\", \"arguments\": {}}"), "\"" + call + "\"",
        std::string("[f()]"), std::string("\n <tool"), std::string("<tool_calm>"), std::string()}) {
    CHECK(summary_with_mark(text) == text);
  }
}

TEST_CASE("calls with a tag for each argument") {
  CHECK(summary_of("<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n"
                   "12\n</parameter>\n<parameter=other>\n[1, \"a\"]\n</parameter>\n</function>\n"
                   "</tool_call>") == "|f{\"text\":\"12\",\"n\":12,\"other\":[1,\"a\"]}");
  CHECK(summary_of("So:\n<function=f>\n<parameter=text>\na\nb\n</parameter>\n</function>") ==
        "So:|f{\"text\":\"a\\nb\"}");
  CHECK(summary_of("<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>5</arg_value>\n"
                   "<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n</tool_call>") ==
        "|f{\"text\":\"5\",\"n\":5}");
  CHECK(summary_of("<tool_call>now</tool_call>") == "|now{}");
}

TEST_CASE("calls that are the whole answer") {
  CHECK(summary_of("{\"name\": \"f\", \"parameters\": {\"text\": \"a;b\"}}") ==
        "|f{\"text\":\"a;b\"}");
  CHECK(summary_of("<|python_tag|>{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"g\", "
                   "\"parameters\": {}}") == "|f{\"n\":1}|g{}");
  CHECK(summary_of("[f(text=\"a, b\", n=-1), m.g(list=[1, True, None, null], map={'k': 2.5})]") ==
        "|f{\"text\":\"a, b\",\"n\":-1}|m.g{\"list\":[1,true,null,null],\"map\":{\"k\":2.5}}");
  CHECK(summary_of("<|tool_call_start|>[f(n=1)]<|tool_call_end|>Done.") == "Done.|f{\"n\":1}");
  // A character in two escapes, as JSON has it.
  CHECK(summary_of("<|tool_call_start|>[f(s=\"\\ud83D\\uDe00\")]<|tool_call_end|>") ==
        "|f{\"s\":\"\xF0\x9F\x98\x80\"}");
}

TEST_CASE("calls of Mistral and Gemma 4") {
  CHECK(summary_of(
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}, \"id\": \"123456789\"}]") ==
        "|f{\"n\":1}");
  CHECK(summary_of("Yes.[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g[CALL_ID]1[ARGS]{}") ==
        "Yes.|f{\"n\":1}|g{}");
  CHECK(summary_of(
            "<|tool_call>call:f{text:<|\"|>a, {b}<|\"|>,n:1,list:[1,<|\"|>c<|\"|>],map:{k:true}}"
            "<tool_call|>") ==
        "|f{\"text\":\"a, {b}\",\"n\":1,\"list\":[1,\"c\"],\"map\":{\"k\":true}}");
}

TEST_CASE("what is no call stays in the answer") {
  for (const std::string answer :
       {"", "Plain text.", "{\"a\": 1}", "[1, 2, 3]", "[]", "[f(1)]", "{ not JSON",
        "Use <tool_call> tags.", "<tool_call>{\"name\": 5}</tool_call>", "<function=f",
        "[TOOL_CALLS]", "<|tool_call>call:f{a:[[[", "<|tool_call>call:f{a:[}<tool_call|>",
        "a < b and c <", "<|python_tag|>print(1)", "<tool_call>later</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}", "  indented\n"}) {
    CHECK(summary_of(answer) == answer);
  }
  const std::string deep(100'000, '[');
  CHECK(parse_tool_calls(deep, {}).calls.empty());
  CHECK(parse_tool_calls("<|tool_call>call:f{a:" + deep, {}).calls.empty());
}

TEST_CASE("the place where an answer begins is found, wherever the pieces are cut") {
  struct Case {
    std::string source;  // of the template
    bool always_thinks;
    std::string thought;  // up to the answer
  };
  const std::vector<Case> cases = {
      {"<think>", false, "<think>a < b </thin </think>"},
      {"[THINK]", false, "a[/THINK]"},
      {"<|channel>", false, "<|channel>thought\na<channel|>"},
      {"<|channel|>analysis", true,
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>"}};
  for (const Case& test : cases) {
    const auto form = thinking_form(test.source);
    REQUIRE(form);
    CHECK(always_thinks(*form) == test.always_thinks);
    for (std::size_t cut = 0; cut < test.thought.size(); ++cut) {
      INFO(test.thought << " cut at " << cut);
      AnswerStart start(*form);
      CHECK_FALSE(start.feed(test.thought.substr(0, cut)));
      CHECK(start.feed(test.thought.substr(cut) + "{<") == "{<");
    }
  }
}

TEST_CASE("thoughts are apart from the answer, wherever the pieces are cut") {
  struct Case {
    std::string source;  // of the template
    std::string prompt;
    std::string text;
    std::string thought;
    std::string answer;
  };
  const std::vector<Case> cases = {
      {"<think>", "", "<think>\nA <b> \n\nB\n</think>\n\nC </x> D\n", "A <b> \n\nB", "C </x> D\n"},
      {"<think>", "assistant\n<think>\n", "A\n</think>\n\nC", "A", "C"},
      {"<think>", "", "no thought", "", "no thought"},
      {"<think>", "", "<think>\n\n</think>\n\nC", "", "C"},
      {"<think>", "<think>", "never ends", "never ends", ""},
      // Marks in texts about marks.
      {"<think>", "", "Write <think> first, </think> last.", "",
       "Write <think> first, </think> last."},
      {"<think>", "<think>", "A <think>\nB</think> C</think>", "A <think>\nB", "C</think>"},
      {"<think>", "<think>", "\n<think>\nA</think></think>\nC", "A", "C"},
      {"[THINK]", "", "[THINK]A[/THINK]C", "A", "C"},
      {"<|channel>", "", "<|channel>thought\nA\n<channel|>C", "A", "C"}};
  for (const Case& test : cases) {
    const auto form = thinking_form(test.source);
    REQUIRE(form);
    const bool starts_inside = opens_thought(*form, test.prompt);
    for (std::size_t cut = 0; cut <= test.text.size(); ++cut) {
      INFO(test.text << " cut at " << cut);
      ThinkingSplitter splitter(*form, starts_inside);
      SplitText result;
      for (const SplitText& part : {splitter.feed(test.text.substr(0, cut)),
                                    splitter.feed(test.text.substr(cut)), splitter.finish()}) {
        result.thought += part.thought;
        result.answer += part.answer;
      }
      CHECK(result.thought == test.thought);
      CHECK(result.answer == test.answer);
    }
  }
  CHECK_FALSE(thinking_form("{{ messages }}"));
}
