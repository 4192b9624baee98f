// Rows of a batch: what a line of the input means, what is said of a bad one, and what comes out.
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/batch/input.h"
#include "core/batch/job_state.h"
#include "core/batch/result.h"
#include "core/batch/row_id.h"
#include "core/batch/row_tasks.h"
#include "core/chat/dialogue.h"
#include "core/rows/answer_body.h"
#include "core/rows/request.h"
#include "core/rows/row_settings.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::batch;
namespace constrain = sluice::constrain;
using namespace sluice::rows;
using nlohmann::json;
using sluice::test::TemporaryFolder;

ParsedRow parse(const std::string& line, std::uint64_t row = 1, const RowDefaults& defaults = {}) {
  return parse_row(line, row, defaults);
}

std::string reason(const std::string& line) {
  const ParsedRow row = parse(line);
  CHECK_FALSE(row.request.has_value());
  CHECK(row.reason.find('\n') == std::string::npos);
  return row.reason;
}

void check_bad(const std::string& line, const std::string& says) {
  INFO(line.substr(0, 200));
  const std::string why = reason(line);
  INFO(why);
  CHECK(why.find(says) != std::string::npos);
}

std::string openai(const std::string& body, const std::string& url = "/v1/completions") {
  return R"({"custom_id":"a","method":"POST","url":")" + url + R"(","body":)" + body + "}";
}

std::string file_of(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.path() / "in.jsonl";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace

TEST_CASE("both forms of a row say the same") {
  RowDefaults defaults;
  defaults.tokens_max = 77;
  defaults.stop = {"#"};
  const ParsedRow plain = parse(R"({"id":"a","prompt":"x"})", 3, defaults);
  const ParsedRow wrapped = parse(openai(R"({"model":"m","prompt":"x"})"), 9, defaults);
  REQUIRE(plain.request);
  REQUIRE(wrapped.request);
  CHECK(plain.header.form == Form::plain);
  CHECK(wrapped.header.form == Form::completions);
  CHECK(wrapped.header.model == "m");
  for (const ParsedRow& row : {plain, wrapped}) {
    CHECK(std::get<std::string>(row.request->prompt) == "x");
    CHECK(row.request->tokens_max == 77);
    CHECK(row.request->stop == defaults.stop);
    CHECK(row.header.id == "a");
  }
  CHECK(plain.request->sampler.seed == wrapped.request->sampler.seed);  // by id, not by place

  const ParsedRow set = parse(
      R"({"id":5,"prompt":[1,2,3],"max_tokens":9,"temperature":0,"top_p":0.5,"top_k":7,"min_p":0,)"
      R"("repeat_penalty":1.5,"seed":-1,"stop":["a","b"],"user":"passed over"})");
  REQUIRE(set.request);
  CHECK(std::get<1>(set.request->prompt) == std::vector<sluice::tokenizer::Token>{1, 2, 3});
  CHECK(set.request->tokens_max == 9);
  CHECK(set.request->sampler.temperature == 0);
  CHECK(set.request->sampler.top_p == 0.5);
  CHECK(set.request->sampler.top_k == 7);
  CHECK(set.request->sampler.min_p == 0);
  CHECK(set.request->sampler.repeat_penalty == 1.5);
  CHECK(set.request->sampler.seed == ~std::uint64_t{0});
  CHECK(set.request->stop == std::vector<std::string>{"a", "b"});
}

TEST_CASE("tools and their calls stay as the row has them, in their order") {
  const std::string body = R"({"messages":[{"role":"user","content":"x"},)"
                           R"({"role":"assistant","content":null,"tool_calls":[{"z":1,"a":2}]},)"
                           R"({"role":"tool","content":"7","tool_call_id":"c"}],)"
                           R"("tools":[{"type":"function","b":1,"name":"f","a":2}]})";
  for (const ParsedRow& row : {parse(body), parse(openai(body, "/v1/chat/completions"))}) {
    INFO(row.reason);
    REQUIRE(row.request);
    const auto& given = std::get<sluice::chat::DialogueBody>(row.request->prompt);
    CHECK(given.messages[1].dump() ==
          R"({"role":"assistant","content":"","tool_calls":[{"z":1,"a":2}]})");
    CHECK(given.messages[2]["tool_call_id"] == "c");
    CHECK(given.tools.dump() == R"([{"type":"function","b":1,"name":"f","a":2}])");
  }
  check_bad(R"({"messages":[{"role":"user","content":"x"}],"tools":7})", "tools");
  check_bad(R"({"messages":[{"role":"user","content":null}]})", "content");
  check_bad(R"({"messages":[{"role":"assistant"}]})", "content");
  CHECK(parse(R"({"messages":[{"role":"assistant","content":null}]})").request);
}

TEST_CASE("a tool is a function with a name, and its parameters are the schema of an object") {
  const auto row_with = [](const std::string& tool) {
    return R"({"messages":[{"role":"user","content":"x"}],"tools":[)" + tool + "]}";
  };
  const auto tool_of = [&](const std::string& tool) {
    const ParsedRow row = parse(row_with(tool));
    INFO(row.reason);
    REQUIRE(row.request);
    return std::get<sluice::chat::DialogueBody>(row.request->prompt).tools[0].dump();
  };
  const std::string plain = R"({"type":"function","function":{"name":"f"}})";
  CHECK(tool_of(plain) == plain);
  CHECK(tool_of(R"({"type":"function","function":{"name":"f","parameters":null}})") == plain);
  // What PHP makes of an empty object.
  CHECK(tool_of(R"({"type":"function","function":{"name":"f","parameters":[]}})") ==
        R"({"type":"function","function":{"name":"f","parameters":{}}})");
  CHECK(tool_of(R"({"name":"f","parameters":{"type":"object","properties":[]}})") ==
        R"({"name":"f","parameters":{"type":"object","properties":{}}})");
  for (const std::string bad : {"7", "[]", "{}", "null", R"({"function":7})", R"({"name":7})",
                                R"({"type":"function","function":{}})", R"({"function":null})"}) {
    check_bad(row_with(bad), "tools");
  }
  for (const std::string parameters : {"7", "\"x\"", "true", "[{}]"}) {
    check_bad(row_with(R"({"function":{"name":"f","parameters":)" + parameters + "}}"),
              "\"parameters\"");
  }
}

TEST_CASE("a long list of allowed tools takes time that grows with it") {
  // Comparing each with each needs half a minute for this.
  const auto list = [](char kind) {
    std::string names;
    for (int i = 0; i < 20000; ++i) {
      names += fmt::format("{}{{\"name\":\"{}{}\"}}", i == 0 ? "" : ",", kind, i);
    }
    return names;
  };
  const std::string row =
      fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],"tools":[{},{{"name":"b1"}}],)"
                  R"("tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{}]}}}})",
                  list('a'), list('b'));
  const ParsedRow parsed = parse(row);
  REQUIRE(parsed.request);
  const auto& tools = std::get<sluice::chat::DialogueBody>(parsed.request->prompt).tools;
  REQUIRE(tools.size() == 1);
  CHECK(tools[0]["name"] == "b1");
}

TEST_CASE("conversations come in either form, with content in parts") {
  const std::string messages =
      R"({"messages":[{"role":"system","content":"s"},)"
      R"({"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},)"
      R"({"role":"assistant","content":null,"refusal":"never"},{"role":"user","content":[]}]})";
  for (const ParsedRow& row : {parse(messages), parse(openai(messages, "/v1/chat/completions"))}) {
    REQUIRE(row.request);
    const auto& list = std::get<sluice::chat::DialogueBody>(row.request->prompt).messages;
    REQUIRE(list.size() == 5);
    CHECK(list[0]["role"] == "system");
    CHECK(list[1]["content"].dump() ==
          R"([{"type":"text","text":"a","x":1},{"type":"text","text":"b"}])");
    CHECK(list[2]["content"].dump() == R"([{"type":"text","text":"no"}])");
    CHECK(list[3]["content"].get<std::string>() == "never");
    CHECK(list[4]["content"].get<std::string>().empty());
  }
  check_bad(openai(R"({"messages":[]})", "/v1/chat/completions"), "empty");
  check_bad(openai(R"({"prompt":"x"})", "/v1/chat/completions"), "messages");
  check_bad(openai(R"({"messages":[{"role":"user"}]})", "/v1/chat/completions"), "content");
  check_bad(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "not a text");
  check_bad(R"({"messages":[{"role":"user","content":7}]})", "content");
  check_bad(R"({"messages":[{"role":"user","content":[{"type":"refusal","refusal":"no"}]}]})",
            "not a text");
  check_bad(R"({"messages":[7]})", "objects");
  check_bad(R"({"messages":"hello"})", "array");
  check_bad(R"({"prompt":"x","messages":[{"role":"user","content":"x"}]})", "not both");
}

TEST_CASE("seeds differ between rows and do not depend on the place of a row with an id") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t row = 1; row <= 50; ++row) {
    seeds.insert(parse(R"({"prompt":"x"})", row).request->sampler.seed);
    const std::string named = R"({"prompt":"x","id":)" + std::to_string(row) + "}";
    const std::uint64_t seed = parse(named, row).request->sampler.seed;
    CHECK(seed == parse(named, 1000 - row).request->sampler.seed);
    seeds.insert(seed);
    RowDefaults other;
    other.sampler.seed = 1;
    seeds.insert(parse(named, row, other).request->sampler.seed);
  }
  CHECK(seeds.size() == 150);
}

TEST_CASE("a bad row is an error that says why") {
  check_bad("", "JSON");
  check_bad("{", "JSON");
  check_bad("hello", "JSON");
  check_bad("[1]", "object");
  check_bad("7", "object");
  check_bad("{} {}", "JSON");
  check_bad("{}", "\"prompt\" is missing");
  check_bad(R"({"prompt":null})", "\"prompt\" is missing");
  check_bad(R"({"prompt":7})", "prompt");
  check_bad(R"({"prompt":["a","b"]})", "several prompts");
  check_bad(R"({"prompt":[[1],[2]]})", "several prompts");
  check_bad(R"({"prompt":[1,-2]})", "-2");
  check_bad(R"({"prompt":[1,"a"]})", "integer");
  check_bad(R"({"prompt":[4294967296]})", "4294967296");
  check_bad(R"({"prompt":"x","id":[]})", "\"id\"");
  check_bad(R"({"prompt":"x","id":1.5})", "\"id\"");
  check_bad(R"({"prompt":"x","max_tokens":"9"})", "max_tokens");
  check_bad(R"({"prompt":"x","max_tokens":-1})", "-1");
  check_bad(R"({"prompt":"x","max_tokens":1.5})", "integer");
  check_bad(R"({"prompt":"x","max_tokens":1e999})", "JSON");
  check_bad(R"({"prompt":"x","max_tokens":99999999999999999999})", "integer");
  check_bad(R"({"prompt":"x","temperature":"hot"})", "temperature");
  check_bad(R"({"prompt":"x","temperature":-1})", "temperature");
  check_bad(R"({"prompt":"x","top_p":2})", "top_p");
  check_bad(R"({"prompt":"x","seed":1.5})", "seed");
  check_bad(R"({"prompt":"x","stop":5})", "stop");
  check_bad(R"({"prompt":"x","stop":[""]})", "stop");
  check_bad(R"({"prompt":"x","model":5})", "model");
  check_bad(std::string("{\"prompt\":\"a\0b\"}", 16), "JSON");
  check_bad(std::string("\0\0\0", 3), "JSON");
  check_bad("{\"prompt\":\"\xff\"}", "JSON");
  check_bad("{\"prompt\":\"\xed\xa0\x80\"}", "JSON");
  check_bad(std::string(200000, '['), "JSON");
  check_bad(R"({"prompt":)" + std::string(200, '[') + std::string(200, ']') + "}", "levels");
  std::string members = "{\"a\":0";
  for (int i = 0; i < 5000; ++i) members += ",\"" + std::to_string(i) + "\":0";
  check_bad(members + "}", "more than 4096 members");
  check_bad(R"({"prompt":")" + std::string(row_bytes_max, 'x') + "\"}", "bytes");
  const std::string wide(text_bytes_max + 1, 'x');
  check_bad(R"({"prompt":"x","id":")" + wide + "\"}", "\"id\" has 4097 bytes");
  check_bad(R"({"prompt":"x","model":")" + wide + "\"}", "\"model\" has 4097 bytes");
  check_bad(
      R"({"prompt":"x","stop":[")" + wide.substr(2048) + R"(",")" + wide.substr(2048) + "\"]}",
      "\"stop\" has 4098 bytes");
  std::string values = R"({"prompt":[0)";
  for (std::size_t i = 0; i < row_values_max; ++i) values += ",1";
  check_bad(values + "]}", "more than 131072 values");
  check_bad(R"({"prompt":"x","stop":)" + json(std::vector<std::string>(65, "a")).dump() + "}",
            "65 texts");
  for (const char* setting :
       {R"("stream":true)", R"("echo":true)", R"("guided_regex":"a")", R"("best_of":2)",
        R"("structured_outputs":{"regex":"a"})", R"("response_format":{"type":"text","x":1})"}) {
    check_bad(R"({"prompt":"x",)" + std::string(setting) + "}", "not supported");
  }
  for (const char* setting :
       {R"("n":0)",
        R"("n":17)",
        R"("top_k":-2)",
        R"("presence_penalty":2.5)",
        R"("frequency_penalty":"1")",
        R"("logit_bias":{"a":1})",
        R"("logit_bias":{"1":101})",
        R"("logit_bias":[1])",
        R"("min_tokens":257)",
        R"("ignore_eos":1)",
        R"("stop_token_ids":7)",
        R"("stop_token_ids":[-1])",
        R"("repetition_penalty":0)",
        R"("logprobs":21)",
        R"("top_logprobs":3)",
        R"("logprobs":"yes")",
        R"("response_format":"text")",
        R"("response_format":{})",
        R"("response_format":{"type":"xml"})",
        R"("response_format":{"type":"json_schema"})",
        R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
        R"("grammar":1)",
        R"("grammar":"root ::= \"a\"","guided_json":{})"}) {
    INFO(setting);
    CHECK_FALSE(parse(R"({"prompt":"x",)" + std::string(setting) + "}").request);
  }
  check_bad(R"({"prompt":"x","max_tokens":100000,"logprobs":1})", "log probabilities");
  check_bad(R"({"prompt":"x","tools":[{}]})", "\"tools\" is for rows with \"messages\"");
  check_bad(R"({"prompt":"x","temprature":1})", "\"temprature\" is no member");
  check_bad(openai(R"({"prompt":"x","id":1})"), "\"id\" is no member");
  check_bad(R"({"custom_id":"a","url":"/v1/completions","max_tokens":1,"body":{"prompt":"x"}})",
            "\"max_tokens\" cannot stand beside");
  for (const char* harmless :
       {R"("n":1)", R"("n":null)", R"("stream":false)", R"("logprobs":null)", R"("tools":[])",
        R"("presence_penalty":0.0)", R"("logit_bias":{})", R"("response_format":{"type":"text"})",
        R"("modalities":["text"])", R"("best_of":1)", R"("user":"u")", R"("metadata":{"a":1})",
        R"("functions":[])", R"("suffix":"")", R"("guided_json":null)"}) {
    INFO(harmless);
    const ParsedRow row = parse(R"({"prompt":"x",)" + std::string(harmless) + "}");
    INFO(row.reason);
    CHECK(row.request);
  }
}

TEST_CASE("the form of a text is read, however it is asked for") {
  using Kind = constrain::TextForm::Kind;
  const auto form_of = [](const std::string& setting) {
    const ParsedRow row = parse(R"({"prompt":"x",)" + setting + "}");
    INFO(setting << ": " << row.reason);
    REQUIRE(row.request);
    return row.request->form;
  };
  CHECK(form_of(R"("response_format":{"type":"text"})") == constrain::TextForm{});
  CHECK(form_of(R"("response_format":{"type":"json_object"})").kind == Kind::json_object);
  const constrain::TextForm schema{Kind::json_schema, R"({"type":"null"})"};
  CHECK(form_of(R"("response_format":{"type":"json_schema","json_schema":{"name":"a",)"
                R"("strict":true,"schema":{"type":"null"}}})") == schema);
  CHECK(form_of(R"("guided_json":{"type":"null"})") == schema);
  CHECK(form_of(R"("guided_json":"{\"type\":\"null\"}")") == schema);
  CHECK(form_of(R"("structured_outputs":{"json":{"type":"null"}})") == schema);
  const constrain::TextForm grammar{Kind::gbnf, "root ::= \"a\""};
  CHECK(form_of(R"("grammar":"root ::= \"a\"")") == grammar);
  CHECK(form_of(R"("guided_grammar":"root ::= \"a\"")") == grammar);
  CHECK(form_of(R"("structured_outputs":{"grammar":"root ::= \"a\""})") == grammar);
  CHECK(form_of(R"("structured_outputs":{"json_object":true})").kind == Kind::json_object);
  CHECK(parse(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],)"
              R"("response_format":{"type":"json_object"}})")
            .request->form.kind == Kind::json_object);
}

TEST_CASE("settings of other servers are read, and the defaults hold in each form") {
  const ParsedRow row = parse(
      R"({"prompt":"x","repeat_penalty":3,"repetition_penalty":1.2,"presence_penalty":0.5,)"
      R"("frequency_penalty":-2,"logit_bias":{"5":1.5,"7":-100},"min_tokens":3,"ignore_eos":true,)"
      R"("stop_token_ids":[4,9],"top_k":-1,"n":16,"logprobs":5,"max_tokens":9,)"
      R"("max_completion_tokens":8})");
  INFO(row.reason);
  REQUIRE(row.request);
  const Request& request = *row.request;
  CHECK(request.sampler.repeat_penalty == 1.2);
  CHECK(request.sampler.repeat_last_n == sluice::sampling::SamplerOptions::whole_text);
  CHECK(request.sampler.presence_penalty == 0.5);
  CHECK(request.sampler.frequency_penalty == -2);
  REQUIRE(request.sampler.logit_bias.size() == 2);
  CHECK(request.sampler.logit_bias[0].token == 5);
  CHECK(request.sampler.logit_bias[1].bias == -100);
  CHECK(request.sampler.top_k == 0);
  CHECK(request.tokens_min == 3);
  CHECK(request.tokens_max == 8);
  CHECK(request.ignores_end);
  CHECK(request.stop_tokens == std::vector<sluice::tokenizer::Token>{4, 9});
  CHECK(request.choices == 16);
  CHECK((request.wants_logprobs && request.top_logprobs == 5));

  RowDefaults defaults;
  defaults.sampler.top_k = 7;
  for (const std::string& text : {std::string(R"({"prompt":"x"})"), openai(R"({"prompt":"x"})")}) {
    const auto plain = parse(text, 1, defaults).request;
    REQUIRE(plain);
    CHECK(plain->sampler.temperature == 0.8);
    CHECK(plain->sampler.top_k == 7);
    CHECK(plain->sampler.top_p == 0.95);
    CHECK(plain->sampler.min_p == 0.05);
  }
  const auto client = parse(openai(R"({"prompt":"x","temperature":1.5})"), 1, defaults).request;
  REQUIRE(client);
  CHECK(client->sampler.temperature == 1.5);

  const ParsedRow chat =
      parse(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],)"
            R"("tool_choice":"none","reasoning_effort":"low","logprobs":true,"top_logprobs":2,)"
            R"("chat_template_kwargs":{"enable_thinking":false}})");
  INFO(chat.reason);
  REQUIRE(chat.request);
  const auto& body = std::get<sluice::chat::DialogueBody>(chat.request->prompt);
  CHECK(body.tools.is_null());
  CHECK(body.variables ==
        nlohmann::ordered_json({{"enable_thinking", false}, {"reasoning_effort", "low"}}));
  CHECK(chat.request->top_logprobs == 2);
  const std::string user = R"({"messages":[{"role":"user","content":"x"}],)";
  check_bad(user + R"("tool_choice":"required"})", "tool_choice");
  check_bad(user + R"("logprobs":1})", "logprobs");
  check_bad(user + R"("chat_template_kwargs":{"messages":1}})", "cannot hold");
}

TEST_CASE("the documentation has the table of row settings") {
  std::ifstream file(std::string(sluice::test::source_folder) + "/docs/batch.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  CHECK(page.find(row_settings_markdown()) != std::string::npos);
}

TEST_CASE("a row of many small values takes time that grows with it") {
  // A quadratic parser needs a minute for this.
  std::string line = R"({"prompt":"x","metadata":[{})";
  for (int i = 1; i < 60000; ++i) line += ",{}";
  CHECK(parse(line + "]}").request);
}

TEST_CASE("what is nested in a row is not copied for each object around it") {
  std::string line = '"' + std::string(1000, 'x') + '"';
  for (int depth = 0; depth < 60; ++depth) {
    std::string members;
    for (int i = 0; i < (depth % 2 == 0 ? 5 : 30); ++i) members += fmt::format(",\"b{}\":0", i);
    line = "{\"a\":" + line + members + "}";
  }
  const RowJson row = parse_row_object(line);
  const RowJson* text = &row;
  while (text->is_object()) text = &*text->begin();
  // The parser leaves room behind a text that it has read, which a copy would not have.
  CHECK(text->get_ref<const std::string&>().capacity() > 1000);
}

TEST_CASE("a bad envelope keeps what can be said of the row") {
  check_bad(R"({"custom_id":7,"url":"/v1/completions","body":{"prompt":"x"}})", "custom_id");
  check_bad(R"({"url":"/v1/completions","body":{"prompt":"x"}})", "custom_id");
  check_bad(R"({"custom_id":"a","body":{"prompt":"x"}})", "url");
  check_bad(R"({"custom_id":"a","url":"/v1/embeddings","body":{"prompt":"x"}})", "url");
  check_bad(R"({"custom_id":"a","url":7,"body":{"prompt":"x"}})", "url");
  check_bad(R"({"custom_id":"a","url":"/v1/completions"})", "body");
  check_bad(R"({"custom_id":"a","url":"/v1/completions","body":"x"})", "body");
  check_bad(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "method");
  const ParsedRow row = parse(openai("{}", "/v1/chat/completions"));
  CHECK(row.header.form == Form::chat);
  CHECK(row.header.id == "a");
}

TEST_CASE("a prompt may hold NUL and any other character, and be as long as a row") {
  const ParsedRow nul = parse(R"({"prompt":"a\u0000b\ud83d\ude00"})");
  REQUIRE(nul.request);
  CHECK(std::get<std::string>(nul.request->prompt) == std::string("a\0b\xF0\x9F\x98\x80", 7));
  const std::string large(row_bytes_max - 13, 'x');
  const ParsedRow row = parse(R"({"prompt":")" + large + "\"}");
  REQUIRE(row.request);
  CHECK(std::get<std::string>(row.request->prompt) == large);
}

TEST_CASE("a broken row is described in the program's own words") {
  const std::string whole =
      R"({"id":"\u00e4","prompt":"caf\u00e9 é","max_tokens":12,"stop":["a","b"],"top_p":0.5e1})";
  std::mt19937_64 random(sluice::test::random_seed());
  int broken = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string line = whole;
    const std::size_t at = random() % line.size();
    switch (random() % 4) {
      case 0:
        line.resize(at);
        break;
      case 1:
        line.erase(at, random() % 4 + 1);
        break;
      case 2:
        line.insert(at, 1, static_cast<char>(random() % 256));
        break;
      default:
        line[at] = "{}[],:\"'\\01e-.\x01\x80"[random() % 17];
    }
    const std::string said = parse(line).reason;
    INFO(line << "\n" << said);
    for (const char* foreign : {"[json", "parse error", "syntax error", "last read", "literal"}) {
      CHECK(said.find(foreign) == std::string::npos);
    }
    CHECK(said.find('\n') == std::string::npos);
    broken += said.find("not JSON") != std::string::npos ? 1 : 0;
  }
  CHECK(broken > 500);
  check_bad(R"({"prompt":"a","b\nc":1})", R"("b\nc" is no member)");
  check_bad(R"({"prompt": 1e999})", "not JSON: a number is too large");
  for (const std::string large : {"18446744073709551616", "-9223372036854775809"}) {
    check_bad(R"({"prompt": "x", "metadata": {"n": [)" + large + "]}}",
              "an integer beyond 64 bits: " + large);
  }
  check_bad(R"({"prompt": "a")", "it ends before it is complete");
  check_bad("{\"prompt\": \"a\xFF\"}", "byte 14: the text is not UTF-8");
  check_bad(R"({"prompt": é})", "byte 12: 'é' cannot stand here");
}

TEST_CASE("a line of results says which code its error has, and whether an answer was cut") {
  using sluice::batch::error_codes;
  const Completion whole{.text = "{\"finish_reason\":\"length\"}"};
  const Completion cut{.text = "t", .finish = Finish::length};
  for (const Form form : {Form::plain, Form::completions, Form::chat}) {
    const RowHeader header{form, "a", ""};
    const auto is_cut = [&](const std::vector<Completion>& choices) {
      std::string line = result_line(1, header, "model", choices);
      line.pop_back();
      return read_result(line)->is_cut;
    };
    CHECK_FALSE(is_cut({whole}));
    CHECK_FALSE(is_cut({whole, whole}));
    CHECK(is_cut({cut}));
    CHECK(is_cut({whole, cut}));
    for (const std::string_view code : {"invalid_request", "cannot_run", "a newer one"}) {
      std::string line = error_line(2, header, {code, 7, "the reason"});
      line.pop_back();
      const std::string_view known = code == "a newer one" ? error_codes.back() : code;
      CHECK(error_codes.at(read_result(line)->code) == known);
      CHECK(sluice::batch::error_message(line) == "line 7: the reason");
    }
  }
}

TEST_CASE("the message of a line that another program has written is empty where it has none") {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const std::string& error :
       {std::string(R"({"message": 5})"), std::string(R"({"message": {"message": "x"}})"),
        std::string("{}"), std::string("[]"), std::string("3"), R"({"message": )" + deep + "}"}) {
    INFO(error.substr(0, 100));
    CHECK(sluice::batch::error_message(R"({"row":1,"id":null,"text":null,"error":)" + error + "}")
              .empty());
  }
}

TEST_CASE("results have the form of their row and carry its number") {
  const Completion completion{
      .text = "t\n", .finish = Finish::length, .prompt_tokens = 3, .completion_tokens = 5};
  for (const auto& [form, id] :
       {std::pair(Form::plain, json(7)), std::pair(Form::plain, json()),
        std::pair(Form::completions, json("a")), std::pair(Form::chat, json("\"\n\u00e9"))}) {
    const RowHeader header{form, id, ""};
    const std::string line = result_line(12, header, "model", completion);
    const std::string bad = error_line(13, header, {"code", 99, "reason"});
    for (const std::string& text : {line, bad}) {
      CHECK(text.find('\n') == text.size() - 1);
      const json object = json::parse(text);
      CHECK(object.at(form == Form::plain ? "id" : "custom_id") == id);
    }
    CHECK(read_result(line.substr(0, line.size() - 1))->row == 12);
    CHECK(read_result(line.substr(0, line.size() - 1))->line_bytes == line.size());
    CHECK_FALSE(read_result(line)->is_error);
    CHECK(read_result(bad)->row == 13);
    CHECK(read_result(bad)->is_error);
    CHECK(json::parse(bad)["error"]["line"] == 99);
    CHECK(json::parse(bad)["error"]["message"] == "line 99: reason");
    const json object = json::parse(line);
    const json body = form == Form::plain ? object : object["response"]["body"];
    CHECK(body["usage"]["prompt_tokens"] == 3);
    CHECK(body["usage"]["completion_tokens"] == 5);
    CHECK(body["usage"]["total_tokens"] == 8);
    if (form == Form::plain) continue;
    CHECK(object["response"]["status_code"] == 200);
    CHECK(body["model"] == "model");
    const json choice = body["choices"][0];
    CHECK(choice["finish_reason"] == "length");
    CHECK((form == Form::chat ? choice["message"]["content"] : choice["text"]) == "t\n");
  }
  for (const char* other :
       {"", "{}", "7", "{\"row\":0,\"error\":null}", "{\"row\":1}",
        "{\"id\":\"batch_req_x\",\"error\":null}", "{\"row\":1,\"error\":nul",
        R"({"row":1,"error":null})", R"({"row":1,"id":2,"error":null,"text":"mine"})",
        R"({"row":1,"id":2,"text":"mine","error":null,"more":1})",
        R"({"id":"batch_req_1","error":null})", R"({"row":-1,"id":2,"text":"","error":null})"}) {
    INFO(other);
    CHECK_FALSE(read_result(other));
  }
}

TEST_CASE("offsets of tokens count characters, from one part of a text to the next") {
  const sluice::test::ByteTokenizer tokenizer;
  std::uint64_t offset = 0;
  const auto offsets_of = [&](const std::string& bytes) {
    Completion completion;
    for (const char byte : bytes) {
      completion.logprobs.push_back({static_cast<unsigned char>(byte), -1});
    }
    return json::parse(logprobs_text(Form::completions, completion, 0, tokenizer, offset))
        .at("text_offset");
  };
  CHECK(offsets_of("ab") == json({0, 1}));
  CHECK(offsets_of("\xc3\xa9z") == json({2, 3, 3}));  // é is two tokens
  CHECK(offsets_of("") == json::array());
  CHECK(offsets_of("c") == json({4}));
}

TEST_CASE("a result has all that was asked for, in the form of its row") {
  const sluice::test::ByteTokenizer tokenizer;
  Completion completion{
      .text = "ab", .finish = Finish::length, .prompt_tokens = 3, .completion_tokens = 2};
  completion.logprobs = {{'a', -0.5F}, {'a', -0.5F},  {'"', -1},
                         {'b', -2},    {'c', -0.25F}, {200, -3}};
  for (const Form form : {Form::plain, Form::completions, Form::chat}) {
    std::uint64_t offset = 0;
    completion.logprobs_text = logprobs_text(form, completion, 2, tokenizer, offset);
    const std::vector<Completion> choices = {completion, completion};
    const std::string line = result_line(1, {form, "x", ""}, "m", choices);
    REQUIRE(read_result(line.substr(0, line.size() - 1)));
    const std::string single = result_line(1, {form, "x", ""}, "m", completion);
    REQUIRE(read_result(single.substr(0, single.size() - 1)));
    const json object = json::parse(line);
    const json body = form == Form::plain ? object : object["response"]["body"];
    CHECK(body["usage"] ==
          json({{"prompt_tokens", 3}, {"completion_tokens", 4}, {"total_tokens", 7}}));
    REQUIRE(body["choices"].size() == 2);
    const json choice = body["choices"][1];
    CHECK(choice["finish_reason"] == "length");
    if (form != Form::plain) CHECK(choice["index"] == 1);
    if (form == Form::completions) {
      CHECK(choice["logprobs"]["tokens"] == json({"a", "b"}));
      CHECK(choice["logprobs"]["token_logprobs"] == json({-0.5, -2.0}));
      CHECK(choice["logprobs"]["top_logprobs"][0]["\""] == -1);
      CHECK(choice["logprobs"]["text_offset"] == json({0, 1}));
      continue;
    }
    const json list = form == Form::chat ? choice["logprobs"]["content"] : choice["logprobs"];
    REQUIRE(list.size() == 2);
    CHECK(list[0]["token"] == "a");
    CHECK(list[1]["logprob"] == -2);
    CHECK(list[1]["top_logprobs"][1]["bytes"] == json({200}));
    if (form == Form::plain) CHECK(json::parse(single)["logprobs"] == list);
  }
}

TEST_CASE("an input is its lines that are not blank") {
  const TemporaryFolder folder;
  struct Case {
    std::string text;
    std::vector<std::string> rows;
    std::vector<std::uint64_t> lines;
  };
  const std::vector<Case> cases = {
      {"", {}, {}},
      {"\n\n \t\r\n", {}, {}},
      {"a", {"a"}, {1}},
      {"a\n", {"a"}, {1}},
      {"\na\n\n \nb", {"a", "b"}, {2, 5}},
      {"a\r\nb\r\n", {"a\r", "b\r"}, {1, 2}},
      {std::string("\0\n\0", 3), {std::string("\0", 1), std::string("\0", 1)}, {1, 2}},
  };
  for (const Case& expected : cases) {
    const Input input(file_of(folder, expected.text));
    REQUIRE(input.rows() == expected.rows.size());
    CHECK(input.bytes() == expected.text.size());
    for (std::uint64_t row = 1; row <= input.rows(); ++row) {
      CHECK(input.read(row) == expected.rows[row - 1]);
      CHECK(input.line_number(row) == expected.lines[row - 1]);
    }
  }
}

TEST_CASE("an input notices repeated ids and any change") {
  const TemporaryFolder folder;
  const std::string text =
      "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":1,\"prompt\":\"x\"}\n{\"prompt\":\"x\"}\n"
      "{\"id\":\"1\",\"prompt\":\"x\"}\n{\"prompt\":\"x\"}\nbad\n{\"id\":\"a\"}\n"
      "{\"id\":1,\"prompt\":\"x\"}\nbad\n{\"custom_id\":\"a\"}\n";
  const Input input(file_of(folder, text));
  for (std::uint64_t row = 1; row <= input.rows(); ++row) {
    const auto first = input.first_of_same_id(row);
    INFO(row);
    CHECK(first.value_or(0) == (row == 7 || row == 10 ? 1U : row == 8 ? 2U : 0U));
  }
  for (std::size_t i = 0; i < text.size(); i += 7) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK(Input(file_of(folder, changed)).digest() != input.digest());
  }
}

TEST_CASE("an input that is changed while its rows are read is refused, and may grow") {
  const TemporaryFolder folder;
  const std::string text = "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n";
  const std::filesystem::path path = file_of(folder, text);
  const auto rewrite = [&](const std::string& content) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::trunc) << content;
  };
  const Input input(path);
  CHECK(input.read(1) == "{\"prompt\":\"one\"}");
  rewrite(text + "{\"prompt\":\"three\"}\n");
  CHECK(input.read(2) == "{\"prompt\":\"two\"}");
  CHECK(input.rows() == 2);
  rewrite(text);  // the same once more
  CHECK(input.read(1) == "{\"prompt\":\"one\"}");
  for (const std::string& other :
       {std::string(text.size(), 'x'), text.substr(0, 30), std::string()}) {
    rewrite(other);
    try {
      static_cast<void>(input.read(1));
      FAIL("a row of another input was read");
    } catch (const sluice::Error& error) {
      CHECK(error.code() == sluice::ExitCode::io);
      CHECK(std::string(error.what()).find("was changed while its rows were read") !=
            std::string::npos);
    }
  }
  rewrite(text);
  CHECK(input.read(2) == "{\"prompt\":\"two\"}");
}

// The index reads ids without making values of the rest of a row.
TEST_CASE("the id of a row is the one that its result has") {
  std::mt19937_64 random(sluice::test::random_seed());
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ":",
                                           ",",
                                           "\"id\"",
                                           "\"custom_id\"",
                                           "\"body\"",
                                           "\"prompt\"",
                                           "\"a\"",
                                           "\"\\u00e4\"",
                                           "1",
                                           "-1",
                                           "-0",
                                           "1.5",
                                           "null",
                                           "true",
                                           "18446744073709551615",
                                           "\"id\":1",
                                           "\"custom_id\":\"c\"",
                                           "\"body\":{}",
                                           "\"id\":\"x\",",
                                           "{\"id\":2}",
                                           " ",
                                           "\xff"};
  const auto check = [](const std::string& line) {
    INFO(line.substr(0, 300));
    const nlohmann::json id = parse_row(line, 1, {}).header.id;
    CHECK(read_row_id(line).value_or("null") == id.dump());
  };
  for (const char* line :
       {R"({"id":"a"})", R"({"id":"a","id":7})", R"({"id":7,"id":null})",
        R"({"id":[1],"x":{"id":2}})", R"({"custom_id":"a","id":"b"})", R"({"id":"b","body":null})",
        R"({"custom_id":3})", R"(["id"])", R"("id")", R"({"id":"a"} x)",
        R"({"x":[{"id":3}],"id":-5})", R"({"id":-0})", R"({"id":18446744073709551615})",
        R"({"id":18446744073709551616})", R"({"id":"a","x":-9223372036854775809})"}) {
    check(line);
  }
  check(R"({"id":")" + std::string(5000, 'x') + R"("})");
  check(R"({"id":1,"x":)" + std::string(row_depth_max, '[') + std::string(row_depth_max, ']') +
        "}");
  std::string values = R"({"id":1,"x":[0)", members = R"({"id":1)", twice = R"({"id":1)";
  for (std::size_t i = 0; i < row_values_max; ++i) values += ",0";
  for (std::size_t i = 0; i < row_members_max; ++i) {
    members += fmt::format(",\"{}\":0", i);
    twice += ",\"x\":0";
  }
  check(values + "]}");
  check(members + "}");
  check(twice + "}");
  for (int i = 0; i < 20000; ++i) {
    std::string line = random() % 4 == 0 ? "" : "{";
    for (std::uint64_t n = random() % 12; n > 0; --n) line += pieces[random() % pieces.size()];
    check(line + (random() % 4 == 0 ? "" : "}"));
  }
}

TEST_CASE("an index is the same wherever the pieces of the file end") {
  const TemporaryFolder folder;
  // Lines around the mebibytes in which the file is read, also blank ones and ones that go over.
  for (const std::size_t before : {0U, 1U, 2U, 9U, 10U, 11U, 30U}) {
    const std::size_t filling = (std::size_t{1} << 20) - before;
    for (const char filler : {' ', 'x'}) {
      const std::string row = R"({"id":"r"})";
      const std::string text = std::string(filling, filler) + "\n" + row + "\n\n" + row +
                               std::string(std::size_t{5} << 20, ' ') + row;
      const Input input(file_of(folder, text));
      const std::uint64_t first = filler == ' ' ? 0 : 1;
      REQUIRE(input.rows() == first + 2);
      CHECK(input.read(first + 1) == row);
      CHECK(input.line_number(first + 1) == 2);
      CHECK(input.read(first + 2).size() == row_bytes_max + 1);
      CHECK(input.line_number(first + 2) == 4);
      CHECK_FALSE(input.first_of_same_id(first + 2));
      const std::string late = std::string(filling, ' ') + row + "\n" + row;
      const Input two(file_of(folder, late));
      REQUIRE(two.rows() == 2);
      CHECK(two.first_of_same_id(2) == std::optional<std::uint64_t>(1));
    }
  }
}

TEST_CASE("a row of any length is read, or cut where it is too long anyway") {
  const TemporaryFolder folder;
  const std::string large(row_bytes_max + 5000, 'x');
  const Input input(file_of(folder, "a\n" + large + "\nb"));
  REQUIRE(input.rows() == 3);
  CHECK(input.read(2).size() == row_bytes_max + 1);
  CHECK(reason(input.read(2)).find("bytes") != std::string::npos);
  CHECK(input.read(3) == "b");
  CHECK_THROWS_AS(Input(folder.path() / "absent"), std::system_error);
  CHECK_THROWS_AS(Input(folder.path()), std::system_error);
}

TEST_CASE("a row that is too long keeps its form and its id, if they stand in front") {
  const std::string text(2 * row_bytes_max, 'x');
  const auto header = [&](const std::string& begin) {
    return header_of_long_row((begin + text).substr(0, row_bytes_max + 1));
  };
  const RowHeader openai = header(R"({"custom_id":"a\n","body":{"prompt":")");
  CHECK(openai.form != Form::plain);
  CHECK(openai.id.get<std::string>() == "a\n");
  const RowHeader plain = header(R"({"id":17,"prompt":")");
  CHECK(plain.form == Form::plain);
  CHECK(plain.id.get<int>() == 17);
  CHECK(header(R"({"prompt":")").id.is_null());
  CHECK(header("").id.is_null());
  CHECK(header(std::string(row_bytes_max, '[')).id.is_null());

  const TemporaryFolder folder;
  const Input input(file_of(folder, R"({"custom_id":"b","body":{"prompt":")" + text + "\"}}\n"));
  const sluice::test::ByteTokenizer tokenizer;
  const auto made = RowTasks(tokenizer, input, {}).make(1);
  CHECK(std::get<RefusedRow>(made).header.id.get<std::string>() == "b");
}

TEST_CASE("a job keeps the day on which it began") {
  JobState state, before;
  state.settings = {{date_setting, "2026-03-02"}};
  CHECK(date_of(state)->tm_mday == 2);
  keep_date(state, std::nullopt);
  CHECK(date_of(state)->tm_mday == 2);
  before.settings = {{date_setting, "2026-03-01"}};
  keep_date(state, before);
  CHECK(date_of(state)->tm_mday == 1);
  CHECK(date_of(state)->tm_wday == 0);  // a Sunday
  CHECK(date_text(*date_of(state)) == "2026-03-01");
  CHECK(differences(before, state).empty());
  state.settings = before.settings = nlohmann::ordered_json::object();
  keep_date(state, before);
  CHECK_FALSE(date_of(state).has_value());
}

TEST_CASE("templates see the date of the job, or else that of each row") {
  const sluice::test::ByteTokenizer tokenizer;
  TaskOptions options;
  options.positions_max = 300;
  const sluice::chat::ChatSource source{std::make_shared<const sluice::chat::ChatTemplate>(
                                            "{{ strftime_now('%Y-%m-%d') }}", "test", nullptr),
                                        {}};
  options.dialogue = std::make_shared<const sluice::chat::Dialogue>(
      source, tokenizer, sluice::chat::DialogueOptions{});
  const auto prompt = [&](const char* seconds) {
    ::setenv("SOURCE_DATE_EPOCH", seconds, 1);
    const auto made = TaskMaker(tokenizer, options)
                          .make(parse(R"({"messages":[{"role":"user","content":"hi"}]})"), 1);
    ::unsetenv("SOURCE_DATE_EPOCH");
    return tokenizer.decode(std::get<Task>(made).prompt);
  };
  CHECK(prompt("0") == "1970-01-01");
  CHECK(prompt("86400") == "1970-01-02");
  JobState job;
  job.settings = {{date_setting, "2026-03-01"}};
  options.now = date_of(job);
  CHECK(prompt("0") == "2026-03-01");
}
