// A server whose model says what it is told, for tests of thoughts and calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/http/api/api.h"
#include "tests/fake_engine.h"
#include "tests/forwarding_engine.h"
#include "tests/http_client.h"

namespace sluice::test {

using nlohmann::json;
using tokenizer::Token;

inline constexpr const char* reasoning_template =
    "{%- for message in messages %}<{{ message.role }}>{{ message.reasoning_content }}"
    "{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}{% endfor %}{% endfor -%}"
    "{%- if tools %}<tools>{{ tools | tojson }} in <tool_call>{% endif -%}"
    "{%- if add_generation_prompt %}<assistant>\n{% if enable_thinking is not defined or "
    "enable_thinking %}<think>\n{% endif %}{% endif -%}";

inline constexpr const char* answer_script =
    "let me see\n</think>\n\nI shall look.\n<tool_call>\n{\"name\": \"get_weather\", "
    "\"arguments\": "
    "{\"town\": \"Ulm\"}}\n</tool_call>";

// The byte that no text has is the token that begins a call.
inline constexpr char call_byte = '\xFF';
class MarkingTokenizer final : public ByteTokenizer {
 public:
  static constexpr Token call_token = 0xFF;
  std::string_view piece(Token token, bool render_special = false) const override {
    if (token != call_token) return ByteTokenizer::piece(token);
    return render_special ? "<tool_call>" : "";
  }
  bool is_ordinary(Token token) const override { return token < call_token; }
};

// Every text is the script, whatever the prompt; what the script wants and may not have, it leaves
// to chance.
class ScriptedEngine final : public ForwardingEngine {
 public:
  ScriptedEngine(std::string script, std::unique_ptr<ByteTokenizer> tokenizer)
      : ForwardingEngine(inner_), script_(std::move(script)), tokenizer_(std::move(tokenizer)) {}
  const tokenizer::Tokenizer& tokenizer() const override { return *tokenizer_; }
  std::span<const std::span<const float>> step(
      std::span<const engine::SequenceWork> works) override {
    inner_.step(works);
    logits_.clear();
    spans_.clear();
    for (const auto& work : works) {
      logits_.emplace_back(ByteTokenizer::tokens, -100.0F);
      const auto known = said_.find(work.sequence);
      if (known == said_.end() && !work.wants_logits) continue;  // a part of the prompt
      std::size_t& said = known == said_.end() ? said_[work.sequence] : known->second;
      if (known != said_.end()) said += work.tokens.size();
      const Token next = said < script_.size() ? static_cast<unsigned char>(script_[said])
                                               : ByteTokenizer::end_token;
      logits_.back()[MarkingTokenizer::call_token] = -200;  // not by chance
      logits_.back()[static_cast<std::size_t>(next)] = 100;
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      spans_.push_back(works[i].wants_logits ? std::span<const float>(logits_[i])
                                             : std::span<const float>());
    }
    return spans_;
  }

 private:
  FakeEngine inner_{FakeLimits{.columns = 64, .logits = 8, .pages = 400}};
  std::string script_;
  std::unique_ptr<ByteTokenizer> tokenizer_;
  std::map<engine::Sequence*, std::size_t> said_;  // tokens of the answer so far
  std::vector<std::vector<float>> logits_;
  std::vector<std::span<const float>> spans_;
};

inline rows::TaskOptions scripted_options(const tokenizer::Tokenizer& tokenizer,
                                          const std::string& chat_template) {
  rows::TaskOptions options;
  options.positions_max = 2000;
  options.defaults.tokens_max = 1000;
  options.shortens_default = true;
  const chat::ChatSource source{
      std::make_shared<const chat::ChatTemplate>(chat_template, "test", nullptr), {}};
  options.dialogue =
      std::make_shared<const chat::Dialogue>(source, tokenizer, chat::DialogueOptions{});
  return options;
}

// One question to a server of its own.
inline Answer ask_for(const json& body, const std::string& text, bool has_call_token,
                      const std::string& path = "/v1/chat/completions",
                      const std::string& chat_template = reasoning_template) {
  std::vector<http::Listener> listeners;
  listeners.push_back(http::Listener::on_port("localhost", 0));
  const std::uint16_t port = listeners.front().port();
  Allowance allowance(std::uint64_t{64} << 20);
  http::Api api({}, allowance);
  http::Server server(std::move(listeners), {}, api, allowance);
  api.attach(server);
  serve::Service service(
      [&](const std::function<void()>&) {
        auto tokens = has_call_token ? std::make_unique<MarkingTokenizer>()
                                     : std::make_unique<ByteTokenizer>();
        return std::make_unique<ScriptedEngine>(text, std::move(tokens));
      },
      {});
  service.wait_until_ready();
  const auto& tokenizer = service.engine().tokenizer();
  api.set_model({.service = &service,
                 .maker = std::make_shared<const rows::TaskMaker>(
                     tokenizer, scripted_options(tokenizer, chat_template)),
                 .name = "scripted"});
  // Ends with the answer, and with an exception in its place.
  struct Running {
    ~Running() {
      server.stop(std::chrono::milliseconds(0));
      thread.join();
    }
    http::Server& server;
    std::thread thread;
  } running{server, std::thread([&] { server.run(); })};
  return HttpClient(port).ask("POST", path, body.dump());
}

// A question, perhaps with a tool.
inline json body_with(bool has_tools, bool streams) {
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

}  // namespace sluice::test
