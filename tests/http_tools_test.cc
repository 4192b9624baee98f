// Thoughts and calls of tools, in one piece and as a stream, from a model that says what it is
// told.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "core/http/api.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/http_client.h"

namespace {

using namespace sluice::http;
using namespace sluice::serve;
using nlohmann::json;
using sluice::test::Answer;
using sluice::test::ByteTokenizer;
using sluice::test::FakeEngine;
using sluice::test::HttpClient;
using sluice::tokenizer::Token;

constexpr const char* reasoning_template =
    "{%- for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor -%}"
    "{%- if tools %}<tools>{{ tools | tojson }}{% endif -%}"
    "{%- if add_generation_prompt %}<assistant>\n{% if enable_thinking is not defined or "
    "enable_thinking %}<think>\n{% endif %}{% endif -%}";

constexpr const char* script =
    "let me see\n</think>\n\nI shall look.\n<tool_call>\n{\"name\": \"get_weather\", "
    "\"arguments\": "
    "{\"town\": \"Ulm\"}}\n</tool_call>";

// Every text is the script, whatever the prompt.
class ScriptedEngine final : public sluice::engine::Engine {
 public:
  const sluice::tokenizer::Tokenizer& tokenizer() const override { return inner_.tokenizer(); }
  const sluice::engine::EngineFacts& facts() const override { return inner_.facts(); }
  const sluice::plan::MemoryPlan& plan() const override { return inner_.plan(); }
  sluice::streaming::TapeStatistics tape_statistics() const override { return {}; }
  std::optional<sluice::streaming::ExpertStatistics> expert_statistics() const override {
    return std::nullopt;
  }
  sluice::engine::Session& session() override { return inner_.session(); }
  std::unique_ptr<sluice::engine::Sequence> new_sequence(std::uint32_t positions) override {
    return inner_.new_sequence(positions);
  }
  std::unique_ptr<sluice::engine::Sequence> fork(const sluice::engine::Sequence& source,
                                                 std::uint32_t prefix,
                                                 std::uint32_t positions) override {
    return inner_.fork(source, prefix, positions);
  }
  std::span<const std::span<const float>> step(
      std::span<const sluice::engine::SequenceWork> works) override {
    inner_.step(works);
    logits_.clear();
    spans_.clear();
    for (const auto& work : works) {
      logits_.emplace_back(ByteTokenizer::tokens, -100.0F);
      const std::string_view text = script;
      const auto at = said_.try_emplace(work.sequence, 0).first;
      if (!work.wants_logits) continue;
      const Token next = at->second < text.size() ? static_cast<unsigned char>(text[at->second])
                                                  : ByteTokenizer::end_token;
      logits_.back()[static_cast<std::size_t>(next)] = 100;
      if (++at->second > text.size()) said_.erase(at);
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      spans_.push_back(works[i].wants_logits ? std::span<const float>(logits_[i])
                                             : std::span<const float>());
    }
    return spans_;
  }
  std::uint32_t step_columns() const override { return inner_.step_columns(); }
  std::uint32_t step_logits() const override { return inner_.step_logits(); }
  std::uint32_t free_positions() const override { return inner_.free_positions(); }

 private:
  FakeEngine inner_{sluice::test::FakeLimits{.columns = 64, .logits = 8, .pages = 400}};
  std::map<sluice::engine::Sequence*, std::size_t> said_;
  std::vector<std::vector<float>> logits_;
  std::vector<std::span<const float>> spans_;
};

TaskOptions task_options(const sluice::tokenizer::Tokenizer& tokenizer) {
  TaskOptions options;
  options.positions_max = 2000;
  options.defaults.tokens_max = 1000;
  options.shortens_default = true;
  const sluice::chat::ChatSource source{
      std::make_shared<const sluice::chat::ChatTemplate>(reasoning_template, "test", nullptr), {}};
  options.dialogue = std::make_shared<const sluice::chat::Dialogue>(
      source, tokenizer, sluice::chat::DialogueOptions{});
  return options;
}

// One question to a server of its own.
std::string ask(const json& body) {
  std::vector<Listener> listeners;
  listeners.push_back(Listener::on_port("localhost", 0));
  const std::uint16_t port = listeners.front().port();
  Api api({});
  Server server(std::move(listeners), {}, api);
  api.attach(server);
  Service service([](const std::function<void()>&) { return std::make_unique<ScriptedEngine>(); },
                  {});
  service.wait_until_ready();
  const auto& tokenizer = service.engine().tokenizer();
  api.set_model({.service = &service,
                 .maker = std::make_shared<const TaskMaker>(tokenizer, task_options(tokenizer)),
                 .name = "scripted"});
  std::thread thread([&] { server.run(); });
  HttpClient client(port);
  const Answer answer = client.ask("POST", "/v1/chat/completions", body.dump());
  client.close();
  server.stop(std::chrono::milliseconds(0));
  thread.join();
  CHECK(answer.status == 200);
  return answer.body;
}

json body_with(bool has_tools, bool streams) {
  json body = {{"messages", {{{"role", "user"}, {"content", "How is the weather in Ulm?"}}}},
               {"stream", streams}};
  if (has_tools) {
    body["tools"] = {
        {{"type", "function"},
         {"function",
          {{"name", "get_weather"},
           {"parameters",
            {{"type", "object"}, {"properties", {{"town", {{"type", "string"}}}}}}}}}}};
  }
  return body;
}

}  // namespace

TEST_CASE("thoughts and calls are split off an answer") {
  const json answer = json::parse(ask(body_with(true, false)));
  const json& choice = answer["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["reasoning_content"] == "let me see");
  CHECK(choice["message"]["content"] == "I shall look.");
  const json& call = choice["message"]["tool_calls"][0];
  CHECK(call["type"] == "function");
  CHECK(call["function"]["name"] == "get_weather");
  CHECK(json::parse(call["function"]["arguments"].get<std::string>()) == json({{"town", "Ulm"}}));
}

TEST_CASE("thoughts and calls are split off a stream, as they are off an answer") {
  const bool has_tools = GENERATE(true, false);
  const json whole = json::parse(ask(body_with(has_tools, false)))["choices"][0];
  std::istringstream events(ask(body_with(has_tools, true)));
  std::string thought, content;
  json calls, finish;
  int thought_pieces = 0;
  for (std::string line; std::getline(events, line);) {
    if (!line.starts_with("data: {")) continue;
    const json event = json::parse(line.substr(6));
    const json& choice = event["choices"][0];
    const json& delta = choice["delta"];
    CHECK(finish.is_null());
    finish = choice["finish_reason"];
    if (delta.contains("reasoning_content")) {
      CHECK(content.empty());  // thoughts come first
      thought += delta["reasoning_content"].get<std::string>();
      ++thought_pieces;
    }
    content += delta.value("content", "");
    if (delta.contains("tool_calls")) calls = delta["tool_calls"];
  }
  CHECK(thought == whole["message"]["reasoning_content"]);
  CHECK(content == whole["message"]["content"]);
  CHECK(thought_pieces > 3);
  CHECK(finish == whole["finish_reason"]);
  if (!has_tools) {
    CHECK(calls.is_null());
    CHECK(content.find("<tool_call>") != std::string::npos);
    return;
  }
  REQUIRE(calls.size() == 1);
  CHECK(calls[0]["index"] == 0);
  CHECK(calls[0]["function"] == whole["message"]["tool_calls"][0]["function"]);
}
