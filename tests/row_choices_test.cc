// What rows may ask for in general words: calls of tools.
#include <string>

#include "core/chat/dialogue.h"
#include "core/rows/request.h"
#include "tests/catch.h"

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
