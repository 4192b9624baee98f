// Calls that a grammar made a model write: in every form, whatever is chosen, they are read back as
// calls of the tools, with arguments of their types.
#include "core/constrain/call_grammar.h"

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/chat/harmony.h"
#include "core/chat/tool_calls.h"
#include "core/chat/written_call.h"
#include "core/constrain/grammar_error.h"
#include "core/rows/answer_guide.h"
#include "tests/catch.h"
#include "tests/constrain_support.h"
#include "tests/random_seed.h"

namespace sluice::constrain {
namespace {

using Json = nlohmann::ordered_json;
using test::ends_of;
using test::ListTokenizer;

const Json& functions() {
  static const Json list = Json::parse(R"([
      {"name":"get_weather","parameters":{"type":"object","required":["town"],"properties":{
         "town":{"type":"string"},
         "days":{"type":"integer","minimum":0,"maximum":9},
         "metric":{"type":"boolean"},
         "when":{"enum":["now","later"]},
         "height":{"anyOf":[{"type":"null"},{"type":"number"}]},
         "user-id":{"$ref":"#/$defs/Id"},
         "unit":{"allOf":[{"$ref":"#/$defs/Unit"}]},
         "any-id":{"anyOf":[{"$ref":"#/$defs/Id"},{"type":"null"}]},
         "version":{"const":5},
         "tags":{"type":"array","items":{"type":"string","maxLength":5},"maxItems":2}},
       "$defs":{"Id":{"type":"integer"},"Unit":{"enum":["m","ft"]}}}},
      {"name":"ping-all"}])");
  return list;
}

Json tools() {
  Json list = Json::array();
  for (const Json& function : functions()) {
    list.push_back({{"type", "function"}, {"function", function}});
  }
  return list;
}

struct Form {
  const char* words;               // that occur in the template
  std::vector<std::string> marks;  // that may be control tokens
};
const Form forms[] = {
    {"<tool_call>", {"<tool_call>", "</tool_call>"}},
    {"<tool_call> <function=", {"<tool_call>", "</tool_call>"}},
    {"<tool_call> <arg_key>",
     {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
    {"<|tool_call_start|>", {"<|tool_call_start|>", "<|tool_call_end|>"}},
    {"[TOOL_CALLS] [ARGS]", {"[TOOL_CALLS]", "[ARGS]"}},
    {"[TOOL_CALLS]", {"[TOOL_CALLS]"}},
    {"<|channel|>", {"<|channel|>", "<|constrain|>", "<|message|>", "<|start|>", "<|end|>"}},
    {"{\"name\": \"parameters\"}", {}},
};

std::vector<chat::ToolCall> calls_in(const std::string& text, bool is_harmony) {
  if (!is_harmony) {
    chat::AnswerWithCalls answer = chat::parse_tool_calls(text, tools());
    CHECK(answer.content.empty());
    return std::move(answer.calls);
  }
  chat::HarmonyReader reader(false, true);
  CHECK(reader.feed(text + "<|call|>").answer.empty());
  CHECK(reader.finish().answer.empty());
  return reader.calls();
}

bool is_expected(const std::string& name, const Json& value) {
  if (name == "town") return value.is_string();
  if (name == "days") return value.is_number_integer() && value >= 0 && value <= 9;
  if (name == "metric") return value.is_boolean();
  if (name == "when") return value == "now" || value == "later";
  if (name == "user-id") return value.is_number_integer();
  if (name == "unit") return value == "m" || value == "ft";
  if (name == "any-id") return value.is_null() || value.is_number_integer();
  if (name == "version") return value == 5;
  if (name == "height") return value.is_null() || value.is_number();
  return name == "tags" && value.is_array() && value.size() <= 2;
}

void check_call(const chat::ToolCall& call) {
  INFO(call.name << call.arguments.dump());
  if (call.name == "ping-all") {
    CHECK(call.arguments.empty());
    return;
  }
  CHECK(call.name == "get_weather");
  CHECK(call.arguments.contains("town"));
  for (const auto& item : call.arguments.items()) {
    INFO(item.key());
    CHECK(is_expected(item.key(), item.value()));
  }
}

// While a text of calls is being written, those that can be read are the first of its calls, as
// they will be: its end closes none of them.
void check_beginnings(const std::string& text, const std::vector<chat::ToolCall>& calls) {
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    const auto so_far =
        chat::parse_tool_calls(text.substr(0, bytes), tools(), chat::AnswerEnd::cut).calls;
    INFO("up to " << bytes);
    REQUIRE(so_far.size() <= calls.size());
    for (std::size_t i = 0; i < so_far.size(); ++i) {
      CHECK(so_far[i].name == calls[i].name);
      CHECK(so_far[i].arguments == calls[i].arguments);
    }
  }
}

}  // namespace

TEST_CASE("calls that a grammar writes are read back as calls, in every form") {
  std::mt19937_64 random(test::random_seed());
  const Form& form = GENERATE(from_range(std::begin(forms), std::end(forms)));
  const bool has_marks = GENERATE(true, false);
  const auto written = chat::written_call(form.words);
  REQUIRE(written);
  std::vector<std::string> pieces = {"</parameter>"}, control_tokens;
  std::vector<std::string>& texts = has_marks ? control_tokens : pieces;
  texts.insert(texts.end(), form.marks.begin(), form.marks.end());
  const ListTokenizer vocabulary = test::random_vocabulary(random, 500, pieces, control_tokens);
  const CallSyntax syntax = rows::call_syntax(*written, vocabulary);
  const std::vector<tokenizer::Token> marks = rows::marks_of(syntax);
  CHECK(marks.empty() == (!has_marks || form.marks.empty()));
  CompileBudget budget;
  const auto constraint =
      std::make_shared<const Constraint>(compile_calls(syntax, functions().dump(), budget),
                                         std::make_shared<const TokenTrie>(vocabulary, marks));
  const bool is_harmony = !written->thought_open.empty();
  int ended = 0;
  for (int i = 0; i < 40; ++i) {
    Matcher matcher(constraint, ends_of(vocabulary));
    const auto text = test::write_at_random(vocabulary, matcher, random);
    if (!text) continue;
    ++ended;
    INFO(form.words << ": " << *text);
    const std::vector<chat::ToolCall> calls = calls_in(*text, is_harmony);
    CHECK_FALSE(calls.empty());
    for (const chat::ToolCall& call : calls) check_call(call);
    if (!is_harmony) check_beginnings(*text, calls);
  }
  INFO(form.words);
  CHECK(ended > 0);  // thoughts are free, and seldom end by chance
}

TEST_CASE("a form of calls that is not known is none") {
  CHECK_FALSE(chat::written_call("<|tool_call>"));  // values in a notation of their own
}

TEST_CASE("a tool whose schema is not supported takes any object") {
  const auto written = chat::written_call("<tool_call>");
  const ListTokenizer vocabulary({"a"});
  const CallSyntax syntax = rows::call_syntax(*written, vocabulary);
  CompileBudget budget;
  const Grammar grammar = compile_calls(
      syntax, R"([{"name":"f","parameters":{"type":"object","not":{"type":"null"}}}])", budget);
  CHECK(
      matches(grammar, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\":[1]}}\n</tool_call>"));
  CHECK_FALSE(matches(grammar, "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"));
  CHECK_FALSE(matches(grammar, "{}"));
}

TEST_CASE("the arguments of a tool are found behind a reference") {
  const ListTokenizer vocabulary({"a"});
  const std::string target = R"({"type":"object","required":["days"],"properties":{
      "days":{"type":"integer"},"inner":{"$ref":"#/$defs/A"}}})";
  for (const std::string& parameters :
       {target, std::string(R"({"$ref":"#/$defs/A","$defs":{"A":)") + target + "}}",
        std::string(R"({"allOf":[{"$ref":"#/$defs/A"}],"$defs":{"A":)") + target + "}}"}) {
    INFO(parameters);
    CompileBudget budget;
    const CallSyntax syntax =
        rows::call_syntax(*chat::written_call("<tool_call> <function="), vocabulary);
    const Grammar grammar =
        compile_calls(syntax, R"([{"name":"f","parameters":)" + parameters + "}]", budget);
    const std::string argument = "<parameter=days>\n5\n</parameter>\n";
    const std::string begin = "<tool_call>\n<function=f>\n", end = "</function>\n</tool_call>";
    CHECK(matches(grammar, begin + argument + end));
    CHECK_FALSE(matches(grammar, begin + end));
  }
}

TEST_CASE("tools that are too many or too large are refused within the budget") {
  Json list = Json::array();
  Json parameters = {{"type", "object"}};
  for (int i = 0; i < 300; ++i) {
    parameters["properties"]["p" + std::to_string(i)] = {{"pattern", "[a-z]{1,50}x[0-9]{1,90}"}};
  }
  for (int i = 0; i < 100; ++i) {
    list.push_back({{"name", "f" + std::to_string(i)}, {"parameters", parameters}});
  }
  const ListTokenizer vocabulary({"a"});
  for (const Form& form : forms) {
    const CallSyntax syntax = rows::call_syntax(*chat::written_call(form.words), vocabulary);
    CompileBudget budget;
    try {
      compile_calls(syntax, list.dump(), budget);
    } catch (const GrammarError&) {
    }
    CHECK(budget.used() < 2 * CompileBudget::compile_steps_max);
    CHECK(budget.bytes_peak() <= CompileBudget::compile_bytes_max);
  }
}

}  // namespace sluice::constrain
