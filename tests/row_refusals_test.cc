// What is said of a row that cannot be run, word for word: by who reads it, and by who knows the
// model; and the prompts of pairs.
#include <fmt/format.h>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "core/rows/pair_prompt.h"
#include "core/rows/request.h"
#include "core/rows/row_json.h"
#include "core/rows/row_problem.h"
#include "core/rows/row_settings.h"
#include "core/rows/task_maker.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/fake_engine.h"

namespace {

using namespace sluice::rows;
using sluice::test::ByteTokenizer;
using sluice::tokenizer::Token;

const std::string user = R"({"messages":[{"role":"user","content":"x"}])";

std::string text_row(const std::string& settings) {
  return R"({"prompt":"x",)" + settings + "}";
}

std::string openai_row(const std::string& body, const std::string& url) {
  return R"({"custom_id":"a","url":")" + url + R"(","body":)" + body + "}";
}

// Why a row is refused; empty where it is not.
std::string reason(const std::string& line) {
  const ParsedRow row = parse_row(line, 1, {});
  CHECK(row.request.has_value() == row.reason.empty());
  return row.reason;
}

std::string list_of(std::size_t count, const std::string& item) {
  std::string list;
  for (std::size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + item;
  return "[" + list + "]";
}

Token id_of(char c) {
  return static_cast<unsigned char>(c);
}

// A byte is a token, and what the parts of a text were is kept.
class PartsTokenizer : public ByteTokenizer {
 public:
  PartsTokenizer(bool has_bos, bool has_end) : has_bos_(has_bos) {
    if (has_end) end_ = {end_token};
  }
  std::vector<Token> encode_parts(std::span<const sluice::tokenizer::TextPart> parts,
                                  std::span<const Token> barred, bool continues) const override {
    for (const auto& part : parts) {
      seen += fmt::format("{}{}|", part.is_markup ? "markup " : "", part.text);
    }
    return ByteTokenizer::encode_parts(parts, barred, continues);
  }
  std::optional<Token> bos() const override {
    return has_bos_ ? std::optional<Token>(begin_token) : std::nullopt;
  }
  bool adds_bos() const override { return has_bos_; }
  std::span<const Token> text_end() const override { return end_; }

  mutable std::string seen;

 private:
  bool has_bos_;
  std::vector<Token> end_;
};

}  // namespace

TEST_CASE("a setting that cannot be is refused word for word") {
  struct Case {
    std::string setting, reason;
  };
  const std::string prediction_form = R"("prediction" must be {"type": "content", "content": ...})";
  const std::vector<Case> cases = {
      {R"("seed":"7")", R"("seed" must be an integer, not string)"},
      {R"("temperature":[])", R"("temperature" must be a number, not array)"},
      {R"("presence_penalty":2.5)", R"("presence_penalty" is 2.5, but must be from -2 to 2)"},
      {R"("frequency_penalty":-3)", R"("frequency_penalty" is -3, but must be from -2 to 2)"},
      {R"("top_k":-2)", R"("top_k" is -2, but must be from 0 to 4294967295)"},
      {R"("n":0)", R"("n" is 0, but must be from 1 to 16)"},
      {R"("n":17)", R"("n" is 17, but must be from 1 to 16)"},
      {R"("min_tokens":257)", R"("min_tokens" is 257, but no more than 256 tokens are generated)"},
      {R"("ignore_eos":1)", R"("ignore_eos" must be true or false, not number)"},
      {R"("logit_bias":7)", R"("logit_bias" must be an object, not number)"},
      {R"("logit_bias":{"-1":1})", R"("logit_bias" has a name that is no token id)"},
      {R"("logit_bias":{"1x":1})", R"("logit_bias" has a name that is no token id)"},
      {R"("logit_bias":{"":1})", R"("logit_bias" has a name that is no token id)"},
      {R"("logit_bias":{"2147483648":1})", R"("logit_bias" has a name that is no token id)"},
      {R"("logit_bias":{"1":-101})", R"("logit_bias" is -101, but must be from -100 to 100)"},
      {R"("stop":5)", R"("stop" must be a string or an array of strings, not number)"},
      {R"("stop":["a",""])", R"("stop" has an empty text)"},
      {R"("max_tokens":2.5)", R"("max_tokens" must be an integer, not number)"},
      {R"("max_tokens":1e300)", R"("max_tokens" must be an integer, not number)"},
      {R"("max_tokens":-2.0)", R"("max_tokens" is -2.0, but must be from 0 to 1073741824)"},
      {R"("n":17.0)", R"("n" is 17.0, but must be from 1 to 16)"},
      {R"("stop":["a",7])", R"("stop" must be a string, not number)"},
      {R"("stop":)" + list_of(65, R"("a")"), R"("stop" has 65 texts, the most is 64)"},
      {R"("stop_token_ids":{})", R"("stop_token_ids" must be an array of token ids, not object)"},
      {R"("stop_token_ids":)" + list_of(65, "1"),
       R"("stop_token_ids" has 65 tokens, the most is 64)"},
      {R"("logprobs":"yes")", R"("logprobs" must be an integer, not string)"},
      {R"("top_logprobs":3)", R"("top_logprobs" needs "logprobs": true)"},
      {R"("max_tokens":100000,"logprobs":1)",
       R"(200000 log probabilities are asked for, the most is 131072: lower "max_tokens" or )"
       R"("top_logprobs")"},
      {R"("max_completion_tokens":-1)",
       R"("max_completion_tokens" is -1, but must be 0 or more (with --shorten, -1 means as many )"
       R"(as there is room for))"},
      {R"("prediction":7)", R"("prediction" must be an object, not number)"},
      {R"("prediction":{"type":"text","content":"a"})", prediction_form},
      {R"("prediction":{"type":"content"})", prediction_form},
      {R"("prediction":{"content":"a"})", prediction_form},
      {R"("prediction":{"x":1})", R"("x" in "prediction" is not supported)"},
      {R"("prediction":{"type":"content","content":7})",
       R"("prediction.content" must be a string, not number)"},
      {R"("prediction":{"type":"content","content":[7]})",
       R"("prediction.content" must be an array of texts, not number)"},
      {R"("prediction":{"type":"content","content":[{"type":"text"}]})",
       R"(a part of "prediction.content" has no "text")"},
      {R"("prediction":{"type":"content","content":[{"text":7}]})",
       R"("prediction.content" must be a string, not number)"},
      {R"("prediction":{"type":"content","content":[{"text":"a","b\n":1}]})",
       R"("b\n" in "prediction.content" is not supported)"},
      {R"("response_format":[])", R"("response_format" must be an object, not array)"},
      {R"("response_format":{})", R"("response_format" has no "type")"},
      {R"("response_format":{"type":"xml"})",
       R"("response_format" can only have the "type" "text", "json_object" or "json_schema")"},
      {R"("response_format":{"type":"json_schema","json_schema":7})",
       R"("response_format" needs an object "json_schema")"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})",
       R"("json_schema" has no "schema")"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"x":1}})",
       R"("x" in "json_schema" is not supported)"},
      {R"("structured_outputs":7)", R"("structured_outputs" must be an object, not number)"},
      {R"("structured_outputs":{"json_object":1})",
       R"("structured_outputs" must be true or false, not number)"},
      {R"("structured_outputs":{"json":{},"grammar":"a"})",
       R"("structured_outputs" stands beside another form of the text)"},
      {R"("chat_template_kwargs":{"a":1})",
       R"("chat_template_kwargs" is for rows with "messages")"},
      {R"("temp\trature":1)", R"("temp\trature" is no member that is known here)"},
  };
  for (const auto& [setting, expected] : cases) {
    CAPTURE(setting);
    CHECK(reason(text_row(setting)) == expected);
  }
  std::string biases;
  for (int i = 0; i < 513; ++i) biases += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
  CHECK(reason(text_row("\"logit_bias\":{" + biases + "}")) ==
        R"("logit_bias" has 513 tokens, the most is 512)");
  // What is next to a limit is taken.
  for (const std::string& setting :
       {R"("stop":)" + list_of(64, R"("a")"), R"("stop_token_ids":)" + list_of(64, "1"),
        std::string(R"("structured_outputs":{"json_object":false})"),
        std::string(R"("top_logprobs":0)"), std::string(R"("logprobs":true,"top_logprobs":20)"),
        std::string(R"("logit_bias":{"2147483647":100})"), std::string(R"("max_tokens":2.0)"),
        std::string(R"("max_tokens":1e2,"n":1.0,"top_k":-1.0)")}) {
    CAPTURE(setting);
    CHECK(reason(text_row(setting)).empty());
  }
}

TEST_CASE("what other servers support is refused, but where it asks for nothing") {
  int limited = 0, ignored = 0;
  for (const RowSetting& setting : row_settings()) {
    const auto with = [&](const std::string& value) {
      return reason(text_row(fmt::format("\"{}\":{}", setting.name, value)));
    };
    CAPTURE(std::string(setting.name));
    if (setting.kind == RowSetting::Kind::read) continue;
    CHECK(with("null").empty());
    if (setting.kind == RowSetting::Kind::ignored) {
      ++ignored;
      CHECK(with(R"([{"any":"thing"}])").empty());
      continue;
    }
    ++limited;
    for (const RowJson& value : setting.accepted) CHECK(with(value.dump()).empty());
    const std::string expected =
        fmt::format("\"{}\" is not supported{}", setting.name,
                    setting.accepted.empty()
                        ? ""
                        : fmt::format(", other than as {}", setting.accepted.front().dump()));
    for (const char* value : {"-12345", R"("something else")", R"(["more"])", R"({"a":1})"}) {
      CHECK(with(value) == expected);
    }
  }
  CHECK(limited >= 30);
  CHECK(ignored >= 8);
}

TEST_CASE("a prediction may be a list of texts") {
  const auto prediction = [](const std::string& content) {
    const std::string setting = R"("prediction":{"type":"content","content":)" + content + "}";
    const ParsedRow row = parse_row(text_row(setting), 1, {});
    REQUIRE(row.request);
    return row.request->prediction;
  };
  CHECK(prediction(R"("ab")") == "ab");
  CHECK(prediction(R"([{"type":"text","text":"a"},{"text":"b"},{"text":""}])") == "ab");
  CHECK(prediction("[]").empty());
}

TEST_CASE("an envelope, a conversation and its settings are refused word for word") {
  const std::string text = R"({"prompt":"x"})", completions = "/v1/completions";
  const std::string with_tools = user + R"(,"tools":[{"name":"f"}],"tool_choice":)";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"url":"/v1/completions","body":{"prompt":"x"}})", R"("custom_id" is missing)"},
      {R"({"custom_id":7,"body":{}})", R"("custom_id" must be a string, not number)"},
      {R"({"id":1.5,"prompt":"x"})", R"("id" must be a string or an integer, not number)"},
      {R"({"custom_id":"a","method":"GET"})", R"("method" must be "POST")"},
      {R"({"custom_id":"a"})", R"("url" is missing)"},
      {R"({"custom_id":"a","url":7})", R"("url" must be a string, not number)"},
      {R"({"custom_id":"a","url":"/v1/completions"})", R"("body" is missing)"},
      {openai_row(text, "/v1/embeddings"),
       R"("url" must be "/v1/completions" or "/v1/chat/completions")"},
      {openai_row("[]", completions), R"("body" must be an object, not array)"},
      {openai_row(user + R"(,"prompt":"x"})", "/v1/chat/completions"),
       R"("prompt" cannot stand beside "messages")"},
      {openai_row(user + R"(,"prompt":"x"})", completions),
       R"("messages" cannot stand beside "prompt")"},
      {R"({"messages":[{"content":"x"}]})", R"(a message needs both "role" and "content")"},
      {R"({"messages":[{"role":7,"content":"x"}]})", R"("role" must be a string, not number)"},
      {R"({"messages":[{"role":"assistant","content":null,"refusal":7}]})",
       R"("refusal" must be a string, not number)"},
      {R"({"messages":[{"role":"user","content":["x"]}]})",
       R"("content" has a part that is not a text)"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":7}]}]})",
       R"("content" has a part that is not a text)"},
      {R"({"messages":[{"role":"user","content":[{"type":"image","text":"x"}]}]})",
       R"("content" has a part that is not a text)"},
      {user + R"(,"logprobs":1})", R"("logprobs" must be true or false, not number)"},
      {user + R"(,"reasoning_effort":1})", R"("reasoning_effort" must be a string, not number)"},
      {user + R"(,"chat_template_kwargs":7})",
       R"("chat_template_kwargs" must be an object, not number)"},
      {user + R"(,"chat_template_kwargs":{"a":1,"tools":[]}})",
       R"("chat_template_kwargs" cannot hold "tools")"},
      {user + R"(,"chat_template_kwargs":{"add_generation_prompt":true}})",
       R"("chat_template_kwargs" cannot hold "add_generation_prompt")"},
      {user + R"(,"tools":7})", R"("tools" must be an array, not number)"},
      {user + R"(,"tools":[7]})", R"("tools" must be an array of objects, not number)"},
      {user + R"(,"tools":[{"function":{"name":"f'","parameters":7}}]})",
       R"("tools" has a function "f\'" whose "parameters" are not the schema of an object)"},
      {with_tools + R"("often"})",
       R"("tool_choice" can only be "auto", "none", "required" or name a function)"},
      {with_tools + R"({"type":"function","name":"g"}})",
       R"("tool_choice" names a function that is not among the "tools")"},
      {with_tools + R"({"type":"function","name":7}})",
       R"("tool_choice" names a function that is not among the "tools")"},
      {with_tools + R"({"type":"allowed_tools","allowed_tools":7}})",
       R"("tool_choice" needs a list of "tools")"},
      {with_tools + R"({"type":"allowed_tools","tools":{}}})",
       R"("tool_choice" needs a list of "tools")"},
      {with_tools + R"({"type":"allowed_tools","mode":"required","tools":[7,{"function":7}]}})",
       R"("tool_choice" asks for a function, but "tools" has none for it)"},
      {user + R"(,"tool_choice":{"type":"function","name":"f"}})",
       R"("tool_choice" asks for a function, but "tools" has none for it)"},
  };
  for (const auto& [line, expected] : cases) {
    CAPTURE(line);
    CHECK(reason(line) == expected);
  }
  CHECK(reason(openai_row(user + R"(,"prompt":[]})", "/v1/chat/completions")).empty());
  CHECK(parse_row(R"({"id":-5,"prompt":["x"]})", 1, {}).header.id == -5);
}

TEST_CASE("what is neither a text nor token ids is refused by the member's name") {
  CHECK(std::get<std::string>(text_or_tokens("a", "input")) == "a");
  const Prompt ids = text_or_tokens(RowJson::parse("[1,2]"), "input");
  CHECK(std::get<std::vector<Token>>(ids) == std::vector<Token>{1, 2});
  const std::pair<const char*, const char*> cases[] = {
      {"[]", R"("input" must be a text, token ids, or an array of these, not array)"},
      {"{}", R"("input" must be a text, token ids, or an array of these, not object)"},
      {"null", R"("input" must be a text, token ids, or an array of these, not null)"},
      {"[1,\"a\"]", R"("input" must be an integer, not string)"},
      {"[-1]", R"("input" is -1, but must be from 0 to 2147483647)"}};
  for (const auto& [value, expected] : cases) {
    CHECK_THROWS_WITH(text_or_tokens(RowJson::parse(value), "input"), expected);
  }
}

TEST_CASE("who knows the model refuses the rest, in one line") {
  const ByteTokenizer tokenizer;
  const PartsTokenizer without_begin(false, false);
  TaskOptions options;
  options.positions_max = 10;
  options.model_names = {"m", "alias"};
  options.no_dialogue = "no format";
  const auto refusal = [&](const std::string& line, const ByteTokenizer& of) {
    CAPTURE(line);
    const auto made = TaskMaker(of, options).make(parse_row(line, 1, options.defaults), 1);
    REQUIRE(std::holds_alternative<RefusedRow>(made));
    const auto& refused = std::get<RefusedRow>(made);
    CHECK(refused.reason.find('\n') == std::string::npos);
    return std::string(refused.code) + ": " + refused.reason;
  };
  const std::string few = R"("max_tokens":1,)", long_text(41, 'x');
  CHECK(refusal(R"({"prompt":"x","model":"a\nb"})", tokenizer) ==
        R"(model_not_found: "model" is "a\nb", but the model here is "m" (--check-model))");
  CHECK(refusal("{" + few + R"("prompt":[1,258]})", tokenizer) ==
        "invalid_request: token 258 is not in the vocabulary of 258 tokens");
  CHECK(refusal("{" + few + R"("prompt":"x","stop_token_ids":[300]})", tokenizer) ==
        R"(invalid_request: "stop_token_ids": token 300 is not in the vocabulary of 258 tokens)");
  CHECK(refusal("{" + few + R"("prompt":"x","logit_bias":{"258":1}})", tokenizer) ==
        R"(invalid_request: "logit_bias": token 258 is not in the vocabulary of 258 tokens)");
  CHECK(refusal(user + "}", tokenizer) == "invalid_request: no format");
  CHECK(refusal(R"({"prompt":[]})", without_begin) ==
        "invalid_request: the prompt is empty and the model has no token to begin one");
  CHECK(refusal("{" + few + R"("prompt":")" + long_text + "\"}", tokenizer) ==
        "prompt_too_long: the prompt of 41 bytes and 1 new tokens need more than the 10 positions "
        "of a sequence (--ctx, --truncate)");
  CHECK(refusal("{" + few + R"("prompt":"123456789"})", tokenizer) ==
        "prompt_too_long: 10 prompt tokens and 1 new ones need more than the 10 positions of a "
        "sequence: behind this prompt there is room for 0 (--ctx, --truncate)");
  for (const auto& [text, reason] :
       {std::pair(long_text, "the prompt of 41 bytes needs more than"),
        std::pair(std::string("123456789"), "10 prompt tokens leave no room in")}) {
    RowDefaults all;
    all.shortens = true;
    const auto made =
        TaskMaker(tokenizer, options)
            .make(parse_row(R"({"max_tokens":-1,"prompt":")" + text + "\"}", 1, all), 1);
    CHECK(std::get<RefusedRow>(made).reason ==
          std::string(reason) + " the 10 positions of a sequence (--ctx, --truncate)");
  }
  const auto tokens = TaskMaker(tokenizer, options)
                          .make_embedding(std::vector<Token>(11, 1), "alias", 1, Pooling::mean);
  CHECK(std::get<RefusedRow>(tokens).reason ==
        "11 tokens are more than the 10 positions of a sequence (--ctx, --truncate)");
  const auto embedding =
      TaskMaker(tokenizer, options).make_embedding(long_text, "alias", 1, Pooling::mean);
  CHECK(std::get<RefusedRow>(embedding).reason ==
        "the text of 41 bytes needs more than the 10 positions of a sequence (--ctx, --truncate)");
  // The names of the model are all taken, and a row may have none.
  for (const char* model : {R"("model":"m",)", R"("model":"alias",)", ""}) {
    const std::string line = "{" + few + model + R"("prompt":"x"})";
    CHECK(std::holds_alternative<Task>(
        TaskMaker(tokenizer, options).make(parse_row(line, 1, {}), 1)));
  }
}

TEST_CASE("a prompt that is too long is cut at the end that is named, between characters") {
  const ByteTokenizer tokenizer;
  const auto cut = [&](const std::string& text, Truncate truncate) {
    TaskOptions options;
    options.positions_max = 10;
    options.truncate = truncate;
    const std::string line = R"({"max_tokens":2,"prompt":")" + text + "\"}";
    auto made = TaskMaker(tokenizer, options).make(parse_row(line, 1, {}), 1);
    REQUIRE(std::holds_alternative<Task>(made));
    const Task& task = std::get<Task>(made);
    CHECK(task.prompt.size() == 8);
    CHECK(task.prompt.front() == ByteTokenizer::begin_token);
    return std::pair(tokenizer.decode(task.prompt), task.truncated_tokens);
  };
  using Cut = std::pair<std::string, std::uint64_t>;
  CHECK(cut("0123456789", Truncate::head) == Cut("3456789", 3));
  CHECK(cut("0123456789", Truncate::tail) == Cut("0123456", 3));
  // 101 bytes, of which 10 positions take 40 at most, before anything becomes tokens.
  std::string wide;
  for (int i = 0; i < 50; ++i) wide += "\u00e9";
  CHECK(cut(wide + "x", Truncate::head).second == 32);  // 39 bytes: no half of a character
  CHECK(cut("x" + wide, Truncate::tail).second == 32);
  CHECK(cut("x" + wide, Truncate::head).second == 33);
  CHECK(cut(wide + "x", Truncate::tail).second == 33);
}

TEST_CASE("a warning of texts is of texts alone, and a prediction is no longer than the text") {
  const ByteTokenizer tokenizer;
  TaskOptions options;
  options.warning_of_texts = "a text";
  int warnings = 0;
  options.on_warning = [&](const std::string& warning) { warnings += warning == "a text" ? 1 : 0; };
  const TaskMaker maker(tokenizer, options);
  const auto made = [&](const std::string& line) {
    return std::get<Task>(maker.make(parse_row(line, 1, {}), 1));
  };
  made(R"({"prompt":[1]})");
  CHECK(warnings == 0);
  made(R"({"prompt":"x"})");
  CHECK(warnings == 1);
  const std::string predicted =
      R"("prediction":{"type":"content","content":"0123456789"},"max_tokens":)";
  CHECK(made(text_row(predicted + "2")).prediction.size() == 8);  // of four bytes each, at most
  CHECK(made(text_row(predicted + "9")).prediction.size() == 10);
  CHECK(made(text_row(predicted + "0")).prediction.empty());

  // What a row asks for is counted before it runs.
  const Task plain_task = made(R"({"prompt":"x"})");
  CHECK(plain_task.warning.empty());
  const std::uint64_t plain = plain_task.held_bytes;
  for (const char* setting :
       {R"("repeat_penalty":1.5)", R"("presence_penalty":1)", R"("frequency_penalty":1)",
        R"("n":2)", R"("logprobs":true)", R"("prediction":{"type":"content","content":"a"})",
        R"("grammar":"root ::= \"a\"")"}) {
    CAPTURE(setting);
    CHECK(made(text_row(setting)).held_bytes > plain);
  }
  CHECK_THAT(made(text_row(R"("guided_json":{"format":"regex"})")).warning,
             sluice::test::Contains("so no text has to have them: \"regex\""));
}

TEST_CASE("a problem is told in words that name no file and fit into a line") {
  CHECK(problem_of(std::bad_alloc()) == "there is not enough memory for this: try again later");
  CHECK(problem_of(std::system_error(EIO, std::generic_category(), "/secret")) ==
        "Input/output error");
  CHECK(problem_of(nlohmann::json::type_error::create(302, "inner words", nullptr)) ==
        "a value is not of the kind that is expected at its place");
  CHECK(problem_of(std::runtime_error("a\nb\tc\x01")) == "a b c ");
}

TEST_CASE("a pair is written as the file's template says, and its texts are no markup") {
  for (const bool has_bos : {true, false}) {
    for (const bool has_end : {true, false}) {
      const PartsTokenizer tokenizer(has_bos, has_end);
      const auto written = [&](const std::string& format) {
        tokenizer.seen.clear();
        std::vector<Token> tokens = PairPrompt(tokenizer, format).encode("<q>", "<t>");
        CHECK((tokens.front() == ByteTokenizer::begin_token) == has_bos);
        CHECK((tokens.back() == ByteTokenizer::end_token) == has_end);
        return tokenizer.seen;
      };
      CHECK(written("<Q>{query}</Q>{document}.") == "markup <Q>|<q>|markup </Q>|<t>|markup .|");
      CHECK(written("{document}{query}") == "<t>|<q>|");
      CHECK(written("{query}{query}") == "<q>|<q>|");
      CHECK(written("{documents} {quer") == "markup {documents} {quer|");
      CHECK(written("a") == "markup a|");
    }
  }
  const PartsTokenizer tokenizer(true, true);
  const std::vector<Token> tokens = PairPrompt(tokenizer, "").encode("q", "t");
  CHECK(tokens == std::vector<Token>{ByteTokenizer::begin_token, id_of('q'), id_of('t')});
}
