// What rows may ask for in general words: calls of tools, and as many tokens as there is room for.
#include <string>
#include <variant>

#include "core/chat/dialogue.h"
#include "core/rows/request.h"
#include "core/rows/task_maker.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"

namespace {

using namespace sluice::rows;

ParsedRow parse(const std::string& line, const RowDefaults& defaults = {}) {
  return parse_row(line, 1, defaults);
}

void check_refused(const std::string& line, const std::string& says) {
  const ParsedRow row = parse(line);
  INFO(line << row.reason);
  CHECK_FALSE(row.request.has_value());
  CHECK(row.reason.find(says) != std::string::npos);
}

}  // namespace

TEST_CASE("a choice of tools is read, and refused by name") {
  const auto row_with = [](const std::string& settings) {
    return R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":)"
           R"({"name":"f"}},{"name":"g"}],)" +
           settings + "}";
  };
  const auto read = [&](const std::string& settings) {
    const std::string line = row_with(settings);
    const ParsedRow row = parse(line);
    INFO(line << row.reason);
    REQUIRE(row.request);
    return *row.request;
  };
  const auto tools_of = [](const Request& request) {
    return std::get<sluice::chat::DialogueBody>(request.prompt).tools.size();
  };
  const Request free = read(R"("tool_choice":"auto","parallel_tool_calls":true)");
  CHECK_FALSE(free.must_call);
  CHECK_FALSE(free.one_call);
  CHECK(tools_of(free) == 2);
  CHECK(tools_of(read(R"("tool_choice":"none")")) == 0);
  CHECK(read(R"("parallel_tool_calls":false)").one_call);
  CHECK(read(R"("tool_choice":"required")").must_call);
  CHECK(read(R"("tool_choice":"required")").called_tool.empty());
  for (const char* named :
       {R"({"type":"function","function":{"name":"g"}})", R"({"type":"function","name":"g"})"}) {
    const Request request = read(R"("tool_choice":)" + std::string(named));
    CHECK(request.must_call);
    CHECK(request.called_tool == "g");
    CHECK(tools_of(request) == 2);  // the prompt is the same, whatever the choice
  }
  const std::string list = R"("tools":[{"type":"function","name":"f"},{"type":"mcp"}]})";
  const Request allowed =
      read(R"("tool_choice":{"type":"allowed_tools","mode":"required",)" + list);
  CHECK(allowed.must_call);
  CHECK(tools_of(allowed) == 1);
  const Request may = read(R"("tool_choice":{"type":"allowed_tools","mode":"auto",)" + list);
  CHECK_FALSE(may.must_call);
  CHECK(tools_of(may) == 1);
  CHECK(tools_of(read(R"("tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]})")) == 0);

  for (const char* bad :
       {R"("often")", "7", "[]", "{}", R"({"type":"function"})", R"({"type":"mcp","name":"f"})",
        R"({"type":"function","name":"h"})", R"({"type":"allowed_tools","mode":"required"})",
        R"({"type":"allowed_tools","mode":"required","tools":[]})",
        R"({"type":"allowed_tools","mode":"always","tools":[{"name":"f"}]})"}) {
    check_refused(row_with(R"("tool_choice":)" + std::string(bad)), "\"tool_choice\"");
  }
  check_refused(row_with(R"("parallel_tool_calls":0)"), "parallel_tool_calls");
  for (const char* choice : {"\"required\"", R"({"type":"function","name":"f"})"}) {
    check_refused(
        R"({"messages":[{"role":"user","content":"x"}],"tool_choice":)" + std::string(choice) + "}",
        "\"tool_choice\"");
  }
}

TEST_CASE("a row gets as many tokens as there is room for, where it may be shortened") {
  const sluice::test::ByteTokenizer tokenizer;
  const auto make = [&](const std::string& settings, bool shortens, std::uint32_t positions = 100) {
    TaskOptions options;
    options.positions_max = positions;
    options.defaults.shortens = shortens;
    const std::string line = R"({"prompt":"123456789",)" + settings + "}";  // ten tokens with BOS
    return TaskMaker(tokenizer, options).make(parse(line, options.defaults), 1);
  };
  const auto tokens = [&](const std::string& settings) {
    const auto made = make(settings, true);
    INFO(settings);
    REQUIRE(std::holds_alternative<Task>(made));
    return std::get<Task>(made).tokens_max;
  };
  CHECK(tokens(R"("max_tokens":-1)") == 90);
  CHECK(tokens(R"("max_completion_tokens":-1)") == 90);
  CHECK(tokens(R"("max_tokens":-1,"max_completion_tokens":7)") == 7);
  CHECK(tokens(R"("max_tokens":1000000)") == 90);
  CHECK(tokens(R"("max_tokens":90)") == 90);
  CHECK(tokens(R"("max_tokens":1000000,"logprobs":20,"n":16,"min_tokens":95)") == 90);
  const auto reason = [&](const std::string& settings, bool shortens, std::uint32_t positions) {
    const auto made = make(settings, shortens, positions);
    INFO(settings);
    REQUIRE(std::holds_alternative<RefusedRow>(made));
    return std::get<RefusedRow>(made).reason;
  };
  // The largest that fits is named.
  CHECK(reason(R"("max_tokens":91)", false, 100).find("room for 90") != std::string::npos);
  CHECK(reason(R"("max_tokens":-1)", false, 100).find("--shorten") != std::string::npos);
  CHECK(reason(R"("max_tokens":-1)", true, 0).find("window") != std::string::npos);
  CHECK(reason(R"("max_tokens":-1)", true, 10).find("leave no room") != std::string::npos);
  CHECK(reason(R"("max_tokens":-2)", true, 100).find("-2") != std::string::npos);
}

TEST_CASE("the form of an answer of gpt-oss begins where its reader finds the answer") {
  const sluice::test::ByteTokenizer tokenizer;
  TaskOptions options;
  options.positions_max = 300;
  options.dialogue = std::make_shared<const sluice::chat::Dialogue>(
      sluice::chat::ChatSource{std::make_shared<const sluice::chat::ChatTemplate>(
                                   "<|channel|>analysis", "test", nullptr),
                               {}},
      tokenizer, sluice::chat::DialogueOptions{});
  const std::string row = R"({"messages":[{"role":"user","content":"x"}],"guided_json":)"
                          R"({"properties":{"a":{"const":1}},"required":["a"]}})";
  const auto made = TaskMaker(tokenizer, options).make(parse(row), 1);
  REQUIRE(std::holds_alternative<Task>(made));
  const Task& task = std::get<Task>(made);
  const auto guide = task.guide();
  Completion completion;
  completion.text =
      "<|channel|>final Here it is<|end|>"
      "<|start|>assistant<|channel|>final<|message|>{\"a\":1}";
  for (const char c : completion.text) {
    guide->take(static_cast<unsigned char>(c), std::string_view(&c, 1));
  }
  CHECK(guide->is_complete());
  split_text(task, completion);
  CHECK(completion.thought == "Here it is");
  CHECK(completion.text == "{\"a\":1}");
}
