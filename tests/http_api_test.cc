// The API on an engine that makes every mistake of the scheduler show: answers are those of a
// batch, whoever else asks; what is wrong is refused in OpenAI's form; who goes is forgotten.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <tuple>

#include "core/batch/job.h"
#include "core/http/api/api.h"
#include "core/http/api/api_error.h"
#include "core/http/api/embeddings.h"
#include "core/http/api/text_request.h"
#include "core/text/base64.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/http_client.h"
#include "tests/random_seed.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::http;
using namespace sluice::rows;
using namespace sluice::serve;
using namespace std::chrono_literals;
using nlohmann::json;
using sluice::test::Answer;
using sluice::test::ByteTokenizer;
using sluice::test::FakeEngine;
using sluice::test::HttpClient;
using sluice::text::from_base64;
using sluice::text::to_base64;

constexpr std::uint32_t positions_max = 300;

// Steps wait while it is closed, and fail while the disk is broken.
struct Gate {
  std::atomic<bool> is_closed{false};
  std::atomic<bool> is_broken{false};
  std::atomic<int> good_steps{1 << 30};  // it breaks after them
  std::atomic<bool> sticks{false};       // a step does not get on, and looks at nothing
  std::atomic<bool> is_stuck{false};
};

TaskOptions task_options(const sluice::tokenizer::Tokenizer& tokenizer) {
  TaskOptions options;
  options.positions_max = positions_max;
  options.defaults.tokens_max = 400;  // shortened to what there is room for
  options.shortens_default = true;
  options.dialogue = std::make_shared<const sluice::chat::Dialogue>(
      sluice::chat::ChatSource{nullptr, sluice::chat::family_named("plain")}, tokenizer,
      sluice::chat::DialogueOptions{});
  return options;
}

// The server as `sluice serve` puts it together, on a free port.
class ApiServer {
 public:
  explicit ApiServer(ApiOptions options = {}, bool loads = true,
                     std::uint64_t bytes = std::uint64_t{64} << 20, bool is_reranker = false)
      : allowance(bytes, bytes / 4),
        is_reranker_(is_reranker),
        queue_max_(options.texts_max),
        api_(std::move(options), allowance) {
    std::vector<Listener> listeners;
    listeners.push_back(Listener::on_port("localhost", 0));
    port = listeners.front().port();
    ServerLimits limits;
    limits.tick = 5ms;
    server_ = std::make_unique<Server>(std::move(listeners), limits, api_, allowance);
    api_.attach(*server_);
    thread_ = std::thread([this] { server_->run(); });
    if (loads) load();
  }
  ~ApiServer() { stop(0ms); }

  // With names, requests may name only these models.
  void load(std::vector<std::string> model_names = {}) {
    service_ = std::make_unique<Service>(
        [this](std::function<void()> stop_check) {
          auto engine = std::make_unique<FakeEngine>(sluice::test::FakeLimits{
              .columns = 16, .logits = 8, .pages = 200, .is_reranker = is_reranker_});
          engine->stop_check = [this, stop_check = std::move(stop_check)] {
            while (gate.is_closed) {
              gate.is_stuck = gate.sticks.load();
              if (!gate.sticks) stop_check();
              std::this_thread::sleep_for(1ms);
            }
            if (gate.is_broken || --gate.good_steps < 0)
              throw std::system_error(EIO, std::generic_category());
            stop_check();
          };
          return engine;
        },
        ServiceOptions{.scheduler = {.parallel = 4}, .queue_max = queue_max_, .retry_pause = 1ms});
    service_->wait_until_ready();
    const auto& tokenizer = service_->engine().tokenizer();
    TaskOptions tasks = task_options(tokenizer);
    tasks.model_names = std::move(model_names);
    api_.set_model({.service = service_.get(),
                    .maker = std::make_shared<const TaskMaker>(tokenizer, tasks),
                    .name = "fake",
                    .created = 12345,
                    .parallel = 4,
                    .context = positions_max});
  }

  void stop(std::chrono::milliseconds grace) {
    begin_to_stop(grace);
    wait();
  }
  void begin_to_stop(std::chrono::milliseconds grace) { server_->stop(grace); }
  void wait() {
    if (thread_.joinable()) thread_.join();
  }

  Service& service() { return *service_; }
  Server& server() { return *server_; }

  Answer ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& fields = "") const {
    HttpClient client(port);
    return client.ask(method, target, body, fields);
  }
  json post(const std::string& target, const std::string& body) const {
    const Answer answer = ask("POST", target, body);
    INFO(answer.body);
    CHECK(answer.status == 200);
    return json::parse(answer.body);
  }

  Gate gate;
  std::uint16_t port = 0;
  sluice::Allowance allowance;

 private:
  const bool is_reranker_;
  const std::size_t queue_max_;
  Api api_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Service> service_;  // calls the others until it is gone
  std::thread thread_;
};

void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  REQUIRE(condition());
}

// The events of a stream, without its last one, which must be [DONE]. Throws where they are not,
// because clients on threads call it and the assertions of Catch2 belong to one thread.
std::vector<json> events_of(const std::string& body) {
  std::vector<json> events;
  std::size_t begin = 0;
  bool is_done = false;
  const auto expect = [&](bool holds) {
    if (!holds) throw std::runtime_error("not a whole stream of events: " + body);
  };
  while (begin < body.size()) {
    const std::size_t end = body.find("\n\n", begin);
    expect(end != std::string::npos);
    const std::string event = body.substr(begin, end - begin);
    begin = end + 2;
    if (event.starts_with(":")) continue;
    expect(event.starts_with("data: ") && !is_done);
    is_done = event == "data: [DONE]";
    if (!is_done) events.push_back(json::parse(event.substr(6)));
  }
  expect(is_done);
  return events;
}

// A streamed answer put together, as the same answer in one piece has it.
json put_together(const std::vector<json>& events) {
  std::map<int, json> choices;
  json whole;
  for (const json& event : events) {
    whole["id"] = event["id"];
    whole["model"] = event["model"];
    if (event.contains("usage") && !event["usage"].is_null()) whole["usage"] = event["usage"];
    for (const json& choice : event["choices"]) {
      const int index = choice["index"];
      if (!choices.contains(index)) choices[index] = {{"text", ""}, {"logprobs", nullptr}};
      json& so_far = choices[index];
      const json& holder = choice.contains("delta") ? choice["delta"] : choice;
      const char* name = choice.contains("delta") ? "content" : "text";
      if (holder.contains(name)) {
        so_far["text"] = so_far["text"].get<std::string>() + holder[name].get<std::string>();
      }
      for (const auto& [key, value] : choice["logprobs"].items()) {
        for (const json& item : value) so_far["logprobs"][key].push_back(item);
      }
      so_far["finish_reason"] = choice["finish_reason"];
    }
  }
  for (const auto& [index, choice] : choices) whole["choices"].push_back(choice);
  return whole;
}

json plain_choices(const json& answer) {
  json list = json::array();
  for (const json& choice : answer["choices"]) {
    list.push_back(
        {{"text", choice.contains("text") ? choice["text"] : choice["message"]["content"]},
         {"logprobs", choice["logprobs"]},
         {"finish_reason", choice["finish_reason"]}});
  }
  return list;
}

// What a batch gives for a body, on an engine of its own.
json batch_result(const std::string& url, const json& body) {
  const sluice::test::TemporaryFolder folder;
  const std::string path = (folder.path() / "in.jsonl").string();
  const json row = {{"custom_id", "a"}, {"method", "POST"}, {"url", url}, {"body", body}};
  std::ofstream(path) << row.dump() << "\n";
  const sluice::batch::Input input(path);
  FakeEngine engine;
  const ByteTokenizer tokenizer;
  sluice::batch::JobOptions options;
  options.task = task_options(tokenizer);
  options.model_name = "fake";
  sluice::batch::DoneRows done(1, {});
  std::string result;
  sluice::batch::Job job(engine, input, done, options,
                         [&](std::string_view line) { result = line; });
  while (job.step()) {
  }
  return json::parse(result)["response"]["body"];
}

std::vector<std::pair<std::string, json>> sample_bodies() {
  const json messages = {{{"role", "system"}, {"content", "be brief"}},
                         {{"role", "user"}, {"content", "hi"}}};
  return {
      {"/v1/completions", {{"prompt", "hello"}, {"seed", 1}, {"max_tokens", 40}}},
      {"/v1/completions", {{"prompt", "hello"}, {"seed", 2}}},
      {"/v1/completions",
       {{"prompt", "x"}, {"seed", 3}, {"max_tokens", 30}, {"n", 3}, {"logprobs", 2}}},
      {"/v1/completions",
       {{"prompt", "x"}, {"seed", 4}, {"max_tokens", 60}, {"stop", {"e", "aa"}}}},
      {"/v1/completions",
       {{"prompt", "y"}, {"seed", 5}, {"temperature", 0}, {"max_tokens", 9}, {"min_tokens", 9}}},
      {"/v1/completions",
       {{"prompt", {1, 2, 3}},
        {"seed", -6},
        {"presence_penalty", 1},
        {"frequency_penalty", 0.5},
        {"logit_bias", {{"65", 5}}},
        {"max_tokens", 25}}},
      {"/v1/completions", {{"prompt", "none"}, {"max_tokens", 0}}},
      {"/v1/chat/completions", {{"messages", messages}, {"seed", 7}, {"max_tokens", 33}}},
      {"/v1/chat/completions",
       {{"messages", messages},
        {"seed", 8},
        {"max_tokens", 12},
        {"n", 2},
        {"logprobs", true},
        {"top_logprobs", 1}}},
  };
}

// The usage as a batch's result tells it: without what depends on what else has run.
json result_usage(const json& answer) {
  json usage = answer["usage"];
  CHECK(usage.erase("prompt_tokens_details") == 1);
  return usage;
}

json streamed(json body) {
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body;
}

}  // namespace

TEST_CASE("an answer is a batch's result, in one piece and as a stream") {
  const ApiServer server;
  for (const auto& [url, body] : sample_bodies()) {
    INFO(url << " " << body);
    const json expected = batch_result(url, body);
    const json whole = server.post(url, body.dump());
    CHECK(whole["choices"] == expected["choices"]);
    CHECK(result_usage(whole) == expected["usage"]);
    CHECK(whole["model"] == "fake");
    CHECK(whole["object"] == expected["object"]);
    // OpenAI's specification has it in every message; typed clients rely on that.
    const json message = whole["choices"][0].value("message", json({{"refusal", nullptr}}));
    CHECK((message.contains("refusal") && message["refusal"].is_null()));
    const Answer answer = server.ask("POST", url, streamed(body).dump());
    CHECK(answer.field("Content-Type") == "text/event-stream");
    const json together = put_together(events_of(answer.body));
    CHECK(together["choices"] == plain_choices(expected));
    CHECK(result_usage(together) == expected["usage"]);
  }
}

TEST_CASE("a chat's first piece names the role, and usage comes only when it is asked for") {
  const ApiServer server;
  json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
               {"stream", true},
               {"seed", 1},
               {"max_tokens", 5},
               {"min_tokens", 5}};
  const std::vector<json> events =
      events_of(server.ask("POST", "/v1/chat/completions", body.dump()).body);
  CHECK(events.front()["choices"][0]["delta"]["role"] == "assistant");
  CHECK(events.front()["object"] == "chat.completion.chunk");
  for (const json& event : events) {
    CHECK_FALSE(event.contains("usage"));
    CHECK(event["id"] == events.front()["id"]);
  }
  CHECK(events.back()["choices"][0]["finish_reason"] == "length");
}

TEST_CASE("a stream tells how far its prompt has been read, to who asks for it") {
  const ApiServer server;
  const std::string text = "/v1/completions";
  json body =
      streamed({{"prompt", std::string(90, 'a')}, {"seed", 3}, {"max_tokens", 7}, {"n", 2}});
  const json silent = put_together(events_of(server.ask("POST", text, body.dump()).body));
  body["return_progress"] = true;
  for (const bool is_known : {false, true}) {
    body["prompt"] = "b" + std::string(100, 'a');
    const std::vector<json> events = events_of(server.ask("POST", text, body.dump()).body);
    const std::uint64_t total = put_together(events)["usage"]["prompt_tokens"];
    std::uint64_t told = 0, processed = 0, shared = 0;
    bool has_begun = false;
    for (const json& event : events) {
      if (!event.contains("prompt_progress")) {
        has_begun = true;
        continue;
      }
      const json& progress = event["prompt_progress"];
      CHECK_FALSE(has_begun);
      CHECK(event["choices"].empty());
      CHECK(event["usage"].is_null());
      CHECK(progress["total"] == total);
      CHECK(progress["processed"].get<std::uint64_t>() >= processed);
      CHECK(progress["time_ms"].is_number_unsigned());
      processed = progress["processed"];
      shared = progress["cache"];
      CHECK(shared <= processed);
      ++told;
    }
    CHECK(processed == total);
    // Before the first step, and after each of at most 16 tokens.
    CHECK(told >= 1 + (total - shared + 15) / 16);
    CHECK(is_known == (shared > total / 2));
  }
  body.erase("return_progress");
  body["prompt"] = std::string(90, 'a');
  const std::vector<json> events = events_of(server.ask("POST", text, body.dump()).body);
  CHECK(put_together(events)["choices"] == silent["choices"]);
  for (const json& event : events) CHECK_FALSE(event.contains("prompt_progress"));
}

TEST_CASE("usage tells how many tokens of the prompts were known from before") {
  const ApiServer server;
  const std::string text = "/v1/completions";
  const auto known = [](const json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<std::uint64_t>();
  };
  json body = {{"prompt", std::string(90, 'a')}, {"max_tokens", 5}};
  body["n"] = 2;  // the second choice finds what the first one has evaluated
  const json first = server.post(text, body.dump());
  const std::uint64_t total = first["usage"]["prompt_tokens"];
  CHECK(known(first) == 0);
  CHECK(known(server.post(text, body.dump())) == total - 1);
  const Answer answer = server.ask("POST", text, streamed(body).dump());
  CHECK(known(put_together(events_of(answer.body))) == total - 1);
  body["prompt"] = {std::string(90, 'a'), std::string(90, 'b'), std::string(90, 'a')};
  CHECK(known(server.post(text, body.dump())) == 2 * (total - 1));
  const json chat = {{"messages", {{{"role", "user"}, {"content", std::string(90, 'c')}}}},
                     {"max_tokens", 5}};
  for (const bool is_known : {false, true}) {
    const json told = server.post("/v1/chat/completions", chat.dump());
    const json same = server.post(
        "/v1/responses", R"({"input":")" + std::string(90, 'c') + R"(","max_output_tokens":5})");
    CHECK((known(told) > told["usage"]["prompt_tokens"].get<std::uint64_t>() / 2) == is_known);
    CHECK(same["usage"]["input_tokens_details"]["cached_tokens"] ==
          told["usage"]["prompt_tokens"].get<std::uint64_t>() - 1);
  }
}

TEST_CASE("many clients get their own texts, whatever the others do") {
  ApiServer server;
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::vector<json> bodies, expected;
  for (int i = 0; i < 12; ++i) {
    bodies.push_back(
        {{"prompt", "prompt " + std::string(static_cast<std::size_t>(i % 5) * 20, 'p')},
         {"seed", i},
         {"max_tokens", 10 + 5 * i}});
    expected.push_back(batch_result("/v1/completions", bodies.back()));
  }
  std::atomic<int> wrong{0}, answered{0};
  std::vector<std::thread> clients;
  for (unsigned number = 0; number < 6; ++number) {
    clients.emplace_back([&, number] {
      std::mt19937_64 random(seed + number);
      for (int i = 0; i < 25; ++i) {
        const std::size_t which = random() % bodies.size();
        const json& body = bodies[which];
        HttpClient client(server.port);
        const std::uint64_t kind = random() % 3;
        const std::string text = kind == 0 ? body.dump() : streamed(body).dump();
        client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                    std::to_string(text.size()) + "\r\n\r\n" + text);
        if (kind == 2) {  // goes in the middle, or before anything has come
          if (random() % 2 == 0) client.receive();
          continue;
        }
        const Answer answer = client.read_answer();
        const json choices = kind == 0 ? plain_choices(json::parse(answer.body))
                                       : put_together(events_of(answer.body))["choices"];
        if (choices != plain_choices(expected[which])) ++wrong;
        ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(wrong == 0);
  CHECK(answered > 30);
  wait_for([&] {
    const Service::Statistics now = server.service().statistics();
    return now.running == 0 && now.completed + now.cancelled == now.accepted;
  });
}

TEST_CASE("what is wrong with a request is said in OpenAI's form") {
  const ApiServer server;
  struct Case {
    std::string method, target, body;
    int status;
    std::string code, param, says;
  };
  const std::string chat = "/v1/chat/completions", text = "/v1/completions";
  const std::vector<Case> cases = {
      {"POST", text, "{", 400, "invalid_request", "", "not JSON"},
      {"POST", text, "[]", 400, "invalid_request", "", "object"},
      {"POST", text, "", 400, "invalid_request", "", "not JSON"},
      {"POST", text, "{}", 400, "invalid_request", "prompt", "missing"},
      {"POST", text, R"({"prompt":"a","max_tokens":-1})", 400, "invalid_request", "max_tokens",
       "must be"},
      {"POST", text, R"({"prompt":"a","temperature":-1})", 400, "invalid_request", "temperature",
       "0 or more"},
      {"POST", text, R"({"prompt":"a","top_p":2})", 400, "invalid_request", "top_p", "from 0 to 1"},
      {"POST", text, R"({"prompt":"a","wishes":3})", 400, "invalid_request", "wishes", "no member"},
      {"POST", text, R"({"prompt":"a","stream":1})", 400, "invalid_request", "stream", "true or"},
      {"POST", text, R"({"prompt":"a","stream_options":{"include_usage":true}})", 400,
       "invalid_request", "stream_options", "needs"},
      {"POST", text, R"({"prompt":"a","stream":true,"stream_options":{"x":true}})", 400,
       "invalid_request", "stream_options", "unknown"},
      {"POST", text, R"({"prompt":"a","return_progress":true})", 400, "invalid_request",
       "return_progress", "needs"},
      {"POST", text, R"({"prompt":"a","stream":true,"return_progress":1})", 400, "invalid_request",
       "return_progress", "true or"},
      {"POST", text, R"({"prompt":")" + std::string(400, 'a') + R"("})", 400,
       "context_length_exceeded", "", "positions"},
      {"POST", text, R"({"prompt":"a","max_tokens":500})", 400, "context_length_exceeded", "",
       "room for 298"},
      {"POST", text, R"({"prompt":["a",3]})", 400, "invalid_request", "prompt", "must be"},
      {"POST", text, R"({"prompt":["a",[258]]})", 400, "invalid_request", "",
       "prompt 1: token 258"},
      {"POST", text, R"({"prompt":["a","b"],"wishes":3})", 400, "invalid_request", "wishes",
       "no member"},
      {"POST", text, R"({"prompt":["a","b"],"stream":true,"return_progress":true})", 400,
       "invalid_request", "return_progress", "one prompt"},
      {"POST", text, R"({"prompt":"a","n":16,"max_tokens":9999,"logprobs":20})", 400,
       "invalid_request", "", "log probabilities"},
      {"POST", text, R"({"prompt":[999]})", 400, "invalid_request", "", "vocabulary"},
      {"POST", text, R"({"prompt":"a","n":99})", 400, "invalid_request", "n", "from 1 to 16"},
      {"POST", text, R"({"prompt":"a","n":0})", 400, "invalid_request", "n", "from 1 to 16"},
      {"POST", text, R"({"prompt":"a","stop":""})", 400, "invalid_request", "stop", "empty"},
      {"POST", text, R"({"prompt":"a","logit_bias":{"9999":1}})", 400, "invalid_request",
       "logit_bias", "vocabulary"},
      {"POST", chat, R"({"messages":[]})", 400, "invalid_request", "messages", "empty"},
      {"POST", chat, R"({"messages":[{"role":"wizard","content":"x"}]})", 400, "invalid_request",
       "", "wizard"},
      {"POST", chat,
       R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"x"}})", 400,
       "invalid_request", "response_format", ""},
      {"POST", chat, "{\"messages\":" + std::string(200, '['), 400, "invalid_request", "",
       "levels"},
      {"POST", text, std::string((1 << 20) + 1, ' '), 413, "too_large", "", "bytes"},
      {"POST", "/v1/embeddings", R"({})", 400, "invalid_request", "input", "missing"},
      {"POST", "/v1/embeddings", R"({"input":[]})", 400, "invalid_request", "input", "empty"},
      {"POST", "/v1/embeddings", R"({"input":"a","dimensions":0})", 400, "invalid_request",
       "dimensions", "must be from 1"},
      {"POST", "/v1/embeddings", R"({"input":"a","dimensions":99999})", 400, "invalid_request",
       "dimensions", "must"},
      {"POST", "/v1/rerank", R"({"query":"a","documents":["b"]})", 501, "not_supported", "",
       "no reranker"},
      {"POST", "/v1/embeddings", R"({"input":["a",{}]})", 400, "invalid_request", "input", "must"},
      {"POST", "/v1/embeddings", R"({"input":[[999]]})", 400, "invalid_request", "", "input 0"},
      {"GET", text, "", 405, "method_not_allowed", "", "GET"},
      {"GET", "/v1/nothing", "", 404, "not_found", "", "/v1/nothing"},
      {"GET", "/v1/models/other", "", 404, "model_not_found", "", "model"},
      {"GET", "/../../etc/passwd", "", 404, "not_found", "", ""},
      {"POST", "/tokenize", R"({"text":"a"})", 400, "invalid_request", "text", "unknown"},
      {"POST", "/tokenize", R"({"content":3})", 400, "invalid_request", "content", "string"},
      {"POST", "/detokenize", R"({"tokens":[258]})", 400, "invalid_request", "tokens", "must be"},
  };
  for (const Case& c : cases) {
    const std::string body = c.body.substr(0, 100);
    INFO(c.method << " " << c.target << " " << body);
    const Answer answer = server.ask(c.method, c.target, c.body);
    INFO(answer.body);
    CHECK(answer.status == c.status);
    const json error = json::parse(answer.body).at("error");
    CHECK(error.size() == 4);
    CHECK(error["code"] == c.code);
    CHECK(error["param"] == (c.param.empty() ? json() : json(c.param)));
    CHECK(error["type"].is_string());
    const std::string message = error["message"].get<std::string>();
    CHECK(message.find(c.says) != std::string::npos);
    CHECK(message.find("row") == std::string::npos);  // that is a word of batches
  }
}

TEST_CASE("a request for another model is told that it is not there") {
  const json messages = {{{"role", "user"}, {"content", "a"}}};
  const std::vector<std::pair<std::string, json>> requests = {
      {"/v1/completions", {{"prompt", "a"}}},
      {"/v1/chat/completions", {{"messages", messages}}},
      {"/v1/responses", {{"input", "a"}}},
      {"/v1/embeddings", {{"input", {"a", "b"}}}},
      {"/v1/rerank", {{"query", "a"}, {"documents", {"b"}}}}};
  for (auto [target, body] : requests) {
    INFO(target);
    ApiServer server({}, false, std::uint64_t{64} << 20, target == "/v1/rerank");
    server.load({"fake", "also fake"});
    body["model"] = "also fake";
    CHECK(server.ask("POST", target, body.dump()).status == 200);
    body["model"] = "other";
    const Answer answer = server.ask("POST", target, body.dump());
    CHECK(answer.status == 404);
    const json error = json::parse(answer.body).at("error");
    CHECK(error["code"] == "model_not_found");
    CHECK(error["param"] == "model");
    CHECK(error["type"] == "invalid_request_error");
    CHECK(error["message"].get<std::string>().find("\"other\"") != std::string::npos);
  }
}

TEST_CASE("an error's type says whether the client or the server is at fault") {
  struct Case {
    unsigned status;
    std::string type, code;
  };
  const std::string client = "invalid_request_error", server = "server_error";
  for (const Case& c : std::vector<Case>{{400, client, "invalid_request"},
                                         {409, client, "conflict"},
                                         {431, client, "header_too_large"},
                                         {500, server, "internal_error"},
                                         {501, client, "not_supported"},
                                         {503, server, "unavailable"},
                                         {505, client, "http_version_not_supported"},
                                         {507, server, "insufficient_storage"}}) {
    INFO(c.status);
    const json error = json::parse(error_json(ApiError(c.status, "a"))).at("error");
    CHECK(error["type"] == c.type);
    CHECK(error["code"] == c.code);
  }
}

TEST_CASE("an answer with status 405 names the methods that there are") {
  const ApiServer server;
  const auto allowed = [&](const std::string& method, const std::string& target) {
    const Answer answer = server.ask(method, target);
    CHECK(answer.status == 405);
    return answer.field("Allow");
  };
  CHECK(allowed("GET", "/v1/completions") == "POST");
  CHECK(allowed("DELETE", "/v1/files") == "POST, GET, HEAD");
  CHECK(allowed("PUT", "/v1/files/file-1") == "GET, HEAD, DELETE");
  CHECK(server.ask("GET", "/v1/nothing").field("Allow").empty());
}

TEST_CASE("the server says that it loads, and then serves") {
  ApiServer server({}, false);
  CHECK(server.ask("GET", "/health").status == 503);
  CHECK(server.ask("GET", "/").status == 200);
  const Answer early = server.ask("POST", "/v1/completions", R"({"prompt":"a"})");
  CHECK(early.status == 503);
  CHECK(early.field("Retry-After") == "1");
  server.load();
  CHECK(server.ask("GET", "/health").status == 200);
  server.post("/v1/completions", R"({"prompt":"a","max_tokens":3})");
}

TEST_CASE("keys are needed where there are keys") {
  ApiOptions options;
  options.keys = ApiKeys::parse("# ours\nkey-number-1\n\n  key-number-2 \n", "test");
  options.requests_per_minute = 3;
  const ApiServer server(std::move(options));
  const auto with = [](const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; };
  CHECK(server.ask("GET", "/v1/models").status == 401);
  CHECK(server.ask("GET", "/v1/models").body.find("needs an API key") != std::string::npos);
  const std::string wrong = server.ask("GET", "/v1/models", "", with("key-number-3")).body;
  CHECK(wrong.find("the API key is none of this server's") != std::string::npos);
  CHECK(server.ask("GET", "/v1/models", "", with("key-number-3")).status == 401);
  CHECK(server.ask("GET", "/v1/models", "", with("key-number-")).status == 401);
  CHECK(server.ask("GET", "/v1/models", "", with("")).status == 401);
  CHECK(server.ask("GET", "/metrics").status == 401);
  CHECK(server.ask("GET", "/health").status == 200);
  CHECK(server.ask("GET", "/v1/models", "", with("key-number-1")).status == 200);
  CHECK(server.ask("GET", "/v1/models", "", with("key-number-2")).status == 200);
  SECTION("and each may make so many requests a minute") {
    const auto tokenize = [&](const char* key) {
      return server.ask("POST", "/tokenize", R"({"content":"a"})", with(key));
    };
    for (int i = 0; i < 3; ++i) CHECK(tokenize("key-number-1").status == 200);
    const Answer refused = tokenize("key-number-1");
    CHECK(refused.status == 429);
    CHECK_FALSE(refused.field("Retry-After").empty());
    CHECK(tokenize("key-number-2").status == 200);
  }
}

TEST_CASE("a file of keys is checked") {
  for (const char* text : {"", "# none\n", "short\n", "with space in it\n"}) {
    CHECK_THROWS(ApiKeys::parse(text, "test"));
  }
  CHECK_THROWS(ApiKeys::parse(std::string(300, 'x'), "test"));
  CHECK_THROWS_AS(ApiKeys::read("/proc/self/fd"), std::system_error);  // it opens, and is not read
  const ApiKeys keys = ApiKeys::parse("first-key\r\nsecond-key", "test");
  CHECK(keys.size() == 2);
  CHECK(keys.find("second-key") == std::optional<std::size_t>(1));
  CHECK_FALSE(keys.find("second-key2").has_value());
  CHECK_FALSE(keys.find("second-key" + std::string(250, '\0')).has_value());
  CHECK(bearer_key("bearer abc ") == "abc");
  CHECK(bearer_key("Basic abc").empty());
}

TEST_CASE("a rate fills up again with time") {
  RateLimit rate(2, 60);
  const auto now = RateLimit::Clock::now();
  RateLimit slow(1, 1e-12);
  CHECK_FALSE(slow.take(0, now).has_value());
  CHECK(slow.take(0, now) == std::optional(std::numeric_limits<unsigned>::max()));
  for (int i = 0; i < 60; ++i) CHECK_FALSE(rate.take(0, now).has_value());
  CHECK(rate.take(0, now) == std::optional<unsigned>(1));
  CHECK_FALSE(rate.take(1, now).has_value());
  CHECK_FALSE(rate.take(0, now + 1100ms).has_value());
  CHECK(rate.take(0, now + 1100ms).has_value());
}

TEST_CASE("pages of other origins may not use the server, unless they are named") {
  ApiOptions options;
  options.origins.allowed = {"https://chat.example"};
  const ApiServer server(std::move(options));
  const auto from = [&](const std::string& method, const std::string& origin) {
    return server.ask(method, "/v1/models", "", "Origin: " + origin + "\r\n");
  };
  CHECK(from("GET", "https://evil.example").status == 403);
  CHECK(from("OPTIONS", "https://evil.example").status == 403);
  CHECK(from("GET", "http://localhost").status == 200);  // the server's own page
  const Answer allowed = from("GET", "https://chat.example");
  CHECK(allowed.status == 200);
  CHECK(allowed.field("Access-Control-Allow-Origin") == "https://chat.example");
  const Answer asked = from("OPTIONS", "https://chat.example");
  CHECK(asked.status == 204);
  CHECK_FALSE(asked.field("Access-Control-Allow-Headers").empty());
  CHECK(server.ask("GET", "/v1/models").field("Access-Control-Allow-Origin").empty());
}

TEST_CASE("a name that somebody else gave to this machine is refused without keys") {
  const auto status_for = [](const ApiServer& server, const std::string& host) {
    HttpClient client(server.port);
    client.send("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.read_answer().status;
  };
  const ApiServer server;
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080",
                           "10.1.2.3", "sluice.localhost"}) {
    CHECK(status_for(server, host) == 200);
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    CHECK(status_for(server, host) == 403);
  }
  HttpClient client(server.port);
  client.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  const std::string told = client.read_answer().body;
  CHECK(told.find("--api-key-file") != std::string::npos);  // what helps
  CHECK(told.find("--insecure") != std::string::npos);
  ApiOptions options;
  options.origins.any_host = true;
  const ApiServer open(std::move(options));
  CHECK(status_for(open, "server.example") == 200);
  // Where other machines can reach it, a server may have any name; on this one it may not.
  OriginRules rules;
  rules.any_host_from_afar = true;
  RequestHead head;
  head.fields = {{"Host", "server.example"}};
  CHECK_FALSE(origin_problem(rules, head).has_value());
  head.is_from_here = true;
  CHECK(origin_problem(rules, head).has_value());
}

TEST_CASE("more texts than may wait are told to come again") {
  ApiOptions options;
  options.texts_max = 3;
  ApiServer server(std::move(options));
  server.gate.is_closed = true;
  const std::string body = R"({"prompt":"a","max_tokens":3,"seed":1})";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  std::vector<std::unique_ptr<HttpClient>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(std::make_unique<HttpClient>(server.port));
    waiting.back()->send(request);
  }
  wait_for([&] { return server.service().statistics().accepted == 2; });
  // Two texts are one too many.
  Answer refused = server.ask("POST", "/v1/completions", R"({"prompt":"a","max_tokens":3,"n":2})");
  CHECK(refused.status == 429);
  CHECK(json::parse(refused.body)["error"]["code"] == "queue_full");
  CHECK_FALSE(refused.field("Retry-After").empty());
  waiting.push_back(std::make_unique<HttpClient>(server.port));
  waiting.back()->send(request);
  wait_for([&] { return server.service().statistics().accepted == 3; });
  refused = server.ask("POST", "/v1/completions", body);
  CHECK(refused.status == 429);
  CHECK(server.ask("GET", "/health").status == 200);
  server.gate.is_closed = false;
  for (const auto& client : waiting) CHECK(client->read_answer().status == 200);
  server.post("/v1/completions", body);
  // There is never room for four.
  server.post("/v1/completions", R"({"prompt":"a","max_tokens":3,"n":3})");
  refused = server.ask("POST", "/v1/completions", R"({"prompt":"a","max_tokens":3,"n":4})");
  CHECK(refused.status == 400);
  const json error = json::parse(refused.body)["error"];
  CHECK(error["param"] == "n");
  CHECK(error["message"].get<std::string>().find("3 texts at most (--queue)") != std::string::npos);
}

TEST_CASE("the texts of a client that has gone are cancelled") {
  ApiServer server;
  server.gate.is_closed = true;
  const bool streams = GENERATE(true, false);
  const std::string body = json({{"prompt", "a"}, {"n", 3}, {"stream", streams}}).dump();
  {
    HttpClient client(server.port);
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    wait_for([&] { return server.service().statistics().accepted == 3; });
  }
  wait_for([&] { return server.service().statistics().cancelled == 3; });
  server.gate.is_closed = false;
  server.post("/v1/completions", R"({"prompt":"a","max_tokens":3})");
}

TEST_CASE("a server that stops lets its answers end") {
  ApiServer server;
  server.gate.is_closed = true;
  const json body = {{"prompt", "a"}, {"seed", 3}, {"max_tokens", 30}};
  const json expected = batch_result("/v1/completions", body);
  HttpClient whole(server.port), stream(server.port);
  const auto send = [](HttpClient& client, const json& wanted) {
    const std::string text = wanted.dump();
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(text.size()) + "\r\n\r\n" + text);
  };
  send(whole, body);
  send(stream, streamed(body));
  wait_for([&] { return server.service().statistics().accepted == 2; });
  server.begin_to_stop(1h);
  server.gate.is_closed = false;
  CHECK(json::parse(whole.read_answer().body)["choices"] == expected["choices"]);
  CHECK(put_together(events_of(stream.read_answer().body))["choices"] == plain_choices(expected));
  whole.close();
  stream.close();
  server.wait();
}

TEST_CASE("an answer whose service stops ends with an error") {
  ApiServer server;
  server.gate.is_closed = true;
  HttpClient client(server.port);
  const std::string body = R"({"prompt":"a"})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  wait_for([&] { return server.service().statistics().accepted == 1; });
  server.service().stop();
  CHECK(client.read_answer().status == 503);
  CHECK(server.ask("POST", "/v1/completions", body).status == 503);
  CHECK(server.ask("GET", "/health").status == 503);
}

TEST_CASE("weights that cannot be read fail requests, and the server goes on") {
  ApiServer server;
  const std::string body = R"({"prompt":"a","max_tokens":3})";
  const auto check_error = [](const json& answer) {
    CHECK(answer["error"]["type"] == "server_error");
    CHECK(answer["error"]["message"].get<std::string>().find("weights") != std::string::npos);
  };
  server.gate.is_closed = server.gate.is_broken = true;
  HttpClient stream(server.port);
  const std::string streamed = R"({"prompt":"a","stream":true})";
  stream.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(streamed.size()) + "\r\n\r\n" + streamed);
  stream.read_head();
  server.gate.is_closed = false;
  check_error(json::parse(stream.read_chunk().substr(6)));
  CHECK(stream.read_chunk().empty());  // the stream has ended, and the connection has not
  const Answer failed = server.ask("POST", "/v1/completions", body);
  CHECK(failed.status == 500);
  check_error(json::parse(failed.body));
  CHECK(server.ask("POST", "/v1/embeddings", R"({"input":"hello"})").status == 500);
  const Answer health = server.ask("GET", "/health");
  CHECK(health.status == 503);
  CHECK(json::parse(health.body)["status"] == "failing");
  server.gate.is_broken = false;
  CHECK(server.ask("POST", "/v1/completions", body).status == 200);
  CHECK(server.ask("GET", "/health").status == 200);
  CHECK(server.ask("GET", "/metrics").body.find("\nsluice_steps_failed_total 3\n") !=
        std::string::npos);
}

TEST_CASE("a grammar that turns out to be too ambiguous is a bad request") {
  const ApiServer server;
  std::string grammar = "root ::= r0", rules;
  for (int i = 0; i < 300; ++i) {
    const std::string number = std::to_string(i);
    grammar += " | r" + number;
    rules += "\nr" + number + " ::= [a-z]+ \"" + number + "\"";
  }
  const json body = {{"prompt", "a"}, {"grammar", grammar + rules}};
  const Answer answer = server.ask("POST", "/v1/completions", body.dump());
  INFO(answer.body);
  CHECK(answer.status == 400);
  CHECK(json::parse(answer.body)["error"]["type"] == "invalid_request_error");
  CHECK(answer.body.find("too ambiguous") != std::string::npos);
}

TEST_CASE("a response has the text of the chat completion that asks for the same") {
  const ApiServer server;
  const json chat = server.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"system","content":"Be short."},{"role":"user","content":"hello"},)"
      R"({"role":"assistant","content":"yes?"},{"role":"user","content":"go on"}],)"
      R"("max_tokens":40,"seed":4,"temperature":0.5,"model":"mine"})");
  json body = {{"instructions", "Be short."},
               {"input",
                {{{"role", "user"}, {"content", "hello"}},
                 {{"type", "message"},
                  {"role", "assistant"},
                  {"content", {{{"type", "output_text"}, {"text", "yes?"}}}}},
                 {{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "go on"}}}}}}},
               {"max_output_tokens", 40},
               {"seed", 4},
               {"temperature", 0.5},
               {"store", true},
               {"model", "mine"}};
  json response = server.post("/v1/responses", body.dump());
  CHECK(response["object"] == "response");
  CHECK(response["model"] == "mine");
  CHECK(response["store"] == false);
  CHECK(response["instructions"] == "Be short.");
  const bool is_cut = chat["choices"][0]["finish_reason"] == "length";
  CHECK(response["status"] == (is_cut ? "incomplete" : "completed"));
  CHECK(response["incomplete_details"].is_null() != is_cut);
  REQUIRE(response["output"].size() == 1);
  const json& message = response["output"][0];
  CHECK(message["type"] == "message");
  const json& text = message["content"][0]["text"];
  CHECK(text == chat["choices"][0]["message"]["content"]);
  CHECK(response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]);
  CHECK(response["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]);

  body["stream"] = true;
  const Answer answer = server.ask("POST", "/v1/responses", body.dump());
  CHECK(answer.status == 200);
  std::string streamed;
  std::vector<std::string> types;
  int numbers = 0;
  json last;
  for (const std::string& event : sluice::test::response_events(answer.body)) {
    last = json::parse(event);
    CHECK(last["sequence_number"] == numbers++);
    types.push_back(last["type"]);
    if (types.back() == "response.output_text.delta") {
      streamed += last["delta"].get<std::string>();
    }
  }
  CHECK(text == streamed);
  std::erase(types, "response.output_text.delta");
  CHECK(types == std::vector<std::string>{
                     "response.created", "response.in_progress", "response.output_item.added",
                     "response.content_part.added", "response.output_text.done",
                     "response.content_part.done", "response.output_item.done",
                     is_cut ? "response.incomplete" : "response.completed"});
  json whole = last["response"];
  for (json* one : {&whole, &response}) {
    for (const char* name : {"id", "created_at", "usage"}) one->erase(name);
    (*one)["output"][0].erase("id");
  }
  CHECK(whole == response);
}

TEST_CASE("what a response cannot have is refused by name") {
  const ApiServer server;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"input":"a","previous_response_id":"resp_1"})", "previous_response_id"},
      {R"({"input":"a","background":true})", "background"},
      {R"({"input":"a","max_tokens":3})", "max_tokens"},
      {R"({"input":"a","n":2})", "n"},
      {R"({"input":"a","tools":[{"name":"f"}]})", "tools"},
      {R"({"input":"a","tools":[{"type":"web_search"}],"tool_choice":"required"})", "tool_choice"},
      {R"({"input":"a","truncation":"auto"})", "truncation"},
      {R"({"input":"a","text":{"form":1}})", "text"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", "content"},
      {R"({"instructions":"a"})", "input"},
      {R"({"input":7})", "input"},
      {R"({"input":"a","wishes":1})", "wishes"},
      {R"({"input":"a","max_output_tokens":"x"})", "max_output_tokens"},
      {R"({"input":"a","text":{"format":{"type":"x"}}})", "text.format"},
      {R"({"input":"a","stream":true,"return_progress":true})", "return_progress"},
      {R"({"input":"a","reasoning":{"effort":7}})", "reasoning.effort"},
      {R"({"input":[]})", "input"},
  };
  for (const auto& [body, param] : cases) {
    INFO(body);
    const Answer answer = server.ask("POST", "/v1/responses", body);
    CHECK(answer.status == 400);
    CHECK(json::parse(answer.body)["error"]["param"] == param);
  }
}

TEST_CASE("texts become embeddings, in the order of the request") {
  const ApiServer server;
  // Numbers have as many digits as a float needs, so they are compared as floats.
  const auto floats = [](const json& list) { return list.get<std::vector<float>>(); };
  const auto of = [](const std::string& text) {
    Pool pool(Pooling::last);
    std::vector<sluice::tokenizer::Token> tokens = ByteTokenizer().encode(text, {.add_bos = true});
    pool.add(sluice::test::fake_hidden(tokens));
    return pool.embedding();
  };
  const json one = server.post("/v1/embeddings", R"({"input":"hello"})");
  REQUIRE(one["data"].size() == 1);
  CHECK(floats(one["data"][0]["embedding"]) == of("hello"));
  CHECK(one["usage"]["prompt_tokens"] == 6);
  json body = {{"input", json::array()}};
  for (int i = 0; i < 20; ++i) body["input"].push_back("text " + std::to_string(i * i));
  const json many = server.post("/v1/embeddings", body.dump());
  REQUIRE(many["data"].size() == 20);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(many["data"][i]["index"] == i);
    CHECK(floats(many["data"][i]["embedding"]) == of(body["input"][i]));
  }
  body["encoding_format"] = "base64";
  const json coded = server.post("/v1/embeddings", body.dump());
  const std::vector<float> first = of("text 0");
  CHECK(coded["data"][0]["embedding"] ==
        to_base64({reinterpret_cast<const char*>(first.data()), first.size() * sizeof(float)}));
  CHECK(to_base64("") == "");
  CHECK(to_base64("f") == "Zg==");
  CHECK(to_base64("fo") == "Zm8=");
  CHECK(to_base64("foo") == "Zm9v");
  CHECK(to_base64("foobar") == "Zm9vYmFy");
  for (const char* bytes : {"f", "fo", "foo", "foob", "\xFF\xFE"}) {
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  CHECK(from_base64("Zg==") == from_base64("Zg"));
  CHECK(from_base64("Z-g") == "");
}

TEST_CASE("a vector can be cut to its first numbers, which have length 1 again") {
  const ApiServer server;
  const auto vector_of = [&](const char* body) {
    return server.post("/v1/embeddings", body)["data"][0]["embedding"].get<std::vector<float>>();
  };
  const std::vector<float> whole = vector_of(R"({"input":"hello"})");
  REQUIRE(whole.size() > 3);
  const std::vector<float> cut = vector_of(R"({"input":"hello","dimensions":3})");
  CHECK(cut == unit_vector(std::vector<double>(whole.begin(), whole.begin() + 3)));
}

TEST_CASE("texts are ranked by their scores, in the forms of several services") {
  const ApiServer server({}, true, std::uint64_t{64} << 20, true);
  json body = {{"query", "which?"}, {"documents", json::array()}, {"model", "mine"}};
  for (int i = 0; i < 20; ++i) body["documents"].push_back("text " + std::to_string(i * i));
  const json all = server.post("/v1/rerank", body.dump());
  REQUIRE(all["results"].size() == 20);
  CHECK(all["model"].get<std::string>() == "mine");
  CHECK(all["usage"]["total_tokens"].get<int>() > 20);
  std::set<std::size_t> indices;
  for (std::size_t i = 0; i < 20; ++i) {
    const json& result = all["results"][i];
    indices.insert(result["index"].get<std::size_t>());
    CHECK_FALSE(result.contains("document"));
    if (i == 0) continue;
    CHECK(result["relevance_score"].get<float>() <=
          all["results"][i - 1]["relevance_score"].get<float>());
  }
  CHECK(indices.size() == 20);

  body["top_n"] = 3;
  body["return_documents"] = true;
  body["documents"][0] = {{"text", "text 0"}};
  for (const char* route : {"/v1/completions", "/v1/chat/completions", "/v1/responses"}) {
    const Answer answer = server.ask("POST", route, R"({"prompt":"a"})");
    CHECK(answer.status == 501);
    CHECK(answer.body.find("writes no text") != std::string::npos);
  }
  const json best = server.post("/v2/rerank", body.dump());
  REQUIRE(best["results"].size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto index = best["results"][i]["index"].get<std::size_t>();
    CHECK(index == all["results"][i]["index"].get<std::size_t>());
    CHECK(best["results"][i]["document"]["text"].get<std::string>() ==
          "text " + std::to_string(index * index));
  }
  const json plain =
      server.post("/rerank", R"({"query":"a","texts":["b","c"],"return_text":true})");
  REQUIRE(plain.size() == 2);
  CHECK(plain[0]["score"].get<float>() >= plain[1]["score"].get<float>());
  CHECK(plain[0]["text"].is_string());

  const auto says = [&](const std::string& wrong, const char* word) {
    const Answer answer = server.ask("POST", "/v1/rerank", wrong);
    INFO(wrong << " " << answer.body);
    CHECK(answer.status == 400);
    CHECK(answer.body.find(word) != std::string::npos);
  };
  says(R"({"documents":["a"]})", "query");
  says(R"({"query":"a"})", "documents");
  says(R"({"query":"a","documents":[]})", "is empty");
  says(R"({"query":"a","documents":["b"],"texts":["c"]})", "are both given");
  says(R"({"query":"a","documents":"b"})", "documents");
  says(R"({"query":"a","documents":[{"txt":"b"}]})", "text");
  says(R"({"query":7,"documents":["b"]})", "query");
  says(R"({"query":"a","documents":["b"],"top_n":-1})", "top_n");
  says(R"({"query":"a","documents":["b"],"wish":1})", "wish");
  CHECK(server.ask("POST", "/v1/embeddings", R"({"input":"a"})").status == 501);
}

TEST_CASE("the tasks of a request for scores take their memory before there are more of them") {
  const ByteTokenizer tokenizer;
  TaskOptions options;
  options.positions_max = 10'000;
  const TaskMaker maker(tokenizer, options);
  const PairPrompt pair(tokenizer, "{query}: {document}");
  json body = {{"query", std::string(8000, 'q')}, {"documents", json::array()}};
  for (int i = 0; i < 2048; ++i) body["documents"].push_back("d");
  constexpr std::uint64_t one_max = 64'000, most = 1'000'000;  // bytes; all would be 65 MB
  std::uint64_t last = 0;
  const auto grow = [&](std::uint64_t bytes) {
    CHECK(bytes > last);
    CHECK(bytes - last < one_max);
    last = bytes;
    if (bytes > most) throw ApiError(503, "no memory");
  };
  CHECK_THROWS_AS(read_rerank_request(maker, pair, Pooling::first, body.dump(), 1, grow), ApiError);
  CHECK(last > most);
  CHECK(last < most + one_max);
}

TEST_CASE("as many embeddings as a request may have come one after the other") {
  ApiServer server({}, true, std::uint64_t{6} << 20);
  json body = {{"input", json::array()}};
  for (int i = 0; i < 2048; ++i) body["input"].push_back(std::to_string(i));
  HttpClient client(server.port, 4096);
  const std::string text = body.dump();
  client.send("POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(text.size()) + "\r\n\r\n" + text);
  const Answer answer = client.read_answer();
  CHECK(answer.status == 200);
  CHECK(answer.field("Transfer-Encoding") == "chunked");
  const json whole = json::parse(answer.body);
  REQUIRE(whole["data"].size() == 2048);
  for (std::size_t i = 0; i < 2048; ++i) CHECK(whole["data"][i]["index"] == i);
  CHECK(whole["data"][7] != whole["data"][8]);
  client.close();
  wait_for([&] { return server.allowance.used() == 0; });
}

TEST_CASE("embeddings come however few texts may wait") {
  json expected;
  for (const std::size_t queue : {64, 1, 2, 3}) {
    INFO(queue);
    ApiOptions options;
    options.texts_max = queue;
    const ApiServer server(std::move(options));
    const json answer = server.post("/v1/embeddings", R"({"input":["a","b","c","d","e","f","g"]})");
    CHECK(answer["data"].size() == 7);
    if (expected.is_null()) expected = answer;
    CHECK(answer == expected);
  }
}

TEST_CASE("embeddings that fail after the first are no whole answer") {
  ApiServer server;
  json body = {{"input", json::array()}};
  for (int i = 0; i < 2000; ++i) body["input"].push_back(std::to_string(i));
  const std::string text = body.dump();
  server.gate.good_steps = 5;
  HttpClient client(server.port);
  client.send("POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(text.size()) + "\r\n\r\n" + text);
  CHECK(client.read_head().starts_with("HTTP/1.1 200 "));
  CHECK_THROWS([&] {
    while (!client.read_chunk().empty()) {
    }
  }());
  server.gate.good_steps = 1 << 30;
  CHECK(server.ask("POST", "/v1/embeddings", R"({"input":"a"})").status == 200);
  wait_for([&] { return server.allowance.used() == 0; });
}

TEST_CASE("what requests hold that wait is counted, and refused when it is too much") {
  ApiServer server({}, true, std::uint64_t{4} << 20);
  const std::uint64_t bytes = server.allowance.bytes();
  server.gate.is_closed = true;
  const auto request = [](int choices) {
    const std::string body =
        json({{"prompt", "a"}, {"max_tokens", 290}, {"logprobs", 5}, {"n", choices}, {"seed", 1}})
            .dump();
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  // More than the server has even when it is idle: coming again would not help.
  HttpClient greedy(server.port);
  greedy.send(request(8));
  CHECK(greedy.read_answer().status == 400);
  std::vector<std::unique_ptr<HttpClient>> waiting;
  std::uint64_t accepted = 0;
  while (true) {
    REQUIRE(waiting.size() < 60);
    waiting.push_back(std::make_unique<HttpClient>(server.port));
    waiting.back()->send(request(1));
    HttpClient& client = *waiting.back();
    wait_for(
        [&] { return client.has_received() || server.service().statistics().accepted > accepted; });
    if (server.service().statistics().accepted == accepted) break;
    ++accepted;
  }
  CHECK(accepted > 2);
  CHECK(server.allowance.used() <= bytes);
  const Answer refused = waiting.back()->read_answer();
  CHECK(refused.status == 503);
  CHECK(refused.field("Retry-After") == "1");
  waiting.pop_back();
  server.gate.is_closed = false;
  for (const auto& client : waiting) CHECK(client->read_answer().status == 200);
  waiting.clear();
  greedy.close();
  wait_for([&] { return server.allowance.used() == 0; });
}

TEST_CASE("bodies that were announced and do not come keep nobody from being heard") {
  const ApiServer server({}, true, std::uint64_t{32} << 20);
  std::vector<std::unique_ptr<HttpClient>> senders;
  std::size_t waiting = 0;
  for (int i = 0; i < 60; ++i) {
    senders.push_back(std::make_unique<HttpClient>(server.port));
    senders.back()->send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n"
        "Expect: 100-continue\r\n\r\n");
    const std::string head = senders.back()->read_head();
    if (head.starts_with("HTTP/1.1 100 ")) {
      ++waiting;
    } else {
      CHECK(head.starts_with("HTTP/1.1 503 "));
    }
    CHECK(server.ask("GET", "/health").status == 200);
  }
  CHECK(waiting > 10);
  CHECK(waiting < 24);
}

TEST_CASE("requests whose clients have gone wait to be read in a bounded number") {
  ApiServer server;
  std::promise<void> end;
  server.server().aside(Lane::texts, [end = end.get_future().share()]() -> Then {
    end.wait();
    return {};
  });
  const std::string body = R"({"content":"a"})";
  const std::string request = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                              std::to_string(body.size()) + "\r\n\r\n" + body;
  std::size_t sent = 0;
  wait_for([&] { return server.server().waiting(Lane::texts) == 0; });
  for (bool is_refused = false; !is_refused; ++sent) {
    REQUIRE(sent < 1000);
    HttpClient client(server.port);
    client.send(request);
    wait_for([&] {
      is_refused = client.has_received();
      return is_refused || server.server().waiting(Lane::texts) == sent + 1;
    });
    if (!is_refused) continue;
    const Answer answer = client.read_answer();
    CHECK(answer.status == 503);
    CHECK(answer.field("Retry-After") == "1");
  }
  CHECK(sent > 128);  // more than there may be connections
  end.set_value();
  wait_for([&] { return server.server().waiting(Lane::texts) == 0; });
  CHECK(server.ask("POST", "/tokenize", body).status == 200);
  wait_for([&] { return server.allowance.used() <= connection_bytes({}); });
}

TEST_CASE("a failure of the server is told by a number, and to its owner in full") {
  const sluice::test::TemporaryFolder folder;
  JobsApi jobs(folder.path() / "data", 1000);
  std::mutex mutex;
  std::vector<std::string> lines;
  ApiOptions options;
  options.jobs = &jobs;
  options.on_trouble = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  const ApiServer server(std::move(options));
  std::filesystem::create_symlink("file-x.json", folder.path() / "data/files/file-x.json");
  const Answer answer = server.ask("GET", "/v1/files/file-x");  // whose description cannot be read
  CHECK(answer.status == 500);
  const json error = json::parse(answer.body)["error"];
  const std::string message = error["message"];
  CHECK(message.find("data") == std::string::npos);
  CHECK(message.find(answer.field("X-Request-Id")) != std::string::npos);
  CHECK(error["type"] == "server_error");
  const std::lock_guard lock(mutex);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find(answer.field("X-Request-Id")) != std::string::npos);
  CHECK(lines[0].find("files") != std::string::npos);
}

TEST_CASE("a watchdog hears of the engine only while it gets on") {
  ApiServer server;
  Service& service = server.service();
  const auto gives_sign = [&] { return service.has_given_sign(); };
  service.ask_for_sign();
  wait_for(gives_sign);
  server.gate.is_closed = true;  // a long step is no reason to end the server
  HttpClient client(server.port);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n" +
              std::string(R"({"prompt":"a"})"));
  wait_for([&] { return service.statistics().accepted == 1; });
  service.ask_for_sign();
  wait_for(gives_sign);
  server.gate.sticks = true;
  wait_for([&] { return server.gate.is_stuck.load(); });
  service.ask_for_sign();
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(gives_sign());
  server.gate.sticks = server.gate.is_closed = false;
  wait_for(gives_sign);
  CHECK(client.read_answer().status == 200);
}

TEST_CASE("routes without a body take none, with a key or without one") {
  const ApiServer server;
  for (const char* target : {"/health", "/", "/v1/models", "/metrics"}) {
    HttpClient client(server.port);
    client.send("GET " + std::string(target) +
                " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    const Answer answer = client.read_answer();
    CHECK(answer.status == 413);
    CHECK(json::parse(answer.body)["error"]["code"] == "too_large");
  }
}

TEST_CASE("text becomes tokens and tokens become text") {
  const ApiServer server;
  const json tokens =
      server.post("/tokenize", R"({"content":"héllo","add_special":true,"with_pieces":true})");
  CHECK(tokens["tokens"][0] == ByteTokenizer::begin_token);
  CHECK(tokens["count"] == 7);
  CHECK(tokens["pieces"].size() == 7);
  json list = tokens["tokens"];
  list.erase(list.begin());
  CHECK(server.post("/detokenize", json({{"tokens", list}}).dump())["content"] == "héllo");
  CHECK(server.post("/detokenize", R"({"tokens":[195]})")["content"] == "\xef\xbf\xbd");
  const json chat = server.post("/tokenize", R"({"messages":[{"role":"user","content":"hello"}]})");
  CHECK(chat["count"] > 5);
  const json none = server.post("/tokenize", R"({"content":"","with_pieces":true})");
  CHECK(none["tokens"] == json::array());
  CHECK(none["pieces"] == json::array());
}

TEST_CASE("what is wrong with a request for tokens, vectors or scores is said by name") {
  const ApiServer server, scoring({}, true, std::uint64_t{64} << 20, true);
  std::string many = "\"a\"";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  const std::string long_text(std::size_t{300} << 10, 'a');
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {"/tokenize", R"({})", "content"},
      {"/tokenize", R"({"content":7})", "content"},
      {"/tokenize", R"({"content":"a","with_pieces":7})", "with_pieces"},
      {"/tokenize", R"({"content":")" + long_text + R"("})", "content"},
      {"/tokenize", R"({"messages":7})", "messages"},
      {"/detokenize", R"({})", "tokens"},
      {"/detokenize", R"({"tokens":"a"})", "tokens"},
      {"/detokenize", R"({"tokens":[-1]})", "tokens"},
      {"/detokenize", R"({"tokens":[1000000000]})", "tokens"},
      {"/v1/embeddings", R"({})", "input"},
      {"/v1/embeddings", R"({"input":[]})", "input"},
      {"/v1/embeddings", R"({"input":7})", "input"},
      {"/v1/embeddings", R"({"input":[[7,"a"]]})", "input"},
      {"/v1/embeddings", R"({"input":[)" + many + "]}", "input"},
      {"/v1/embeddings", R"({"input":"a","encoding_format":"hex"})", "encoding_format"},
      {"/v1/embeddings", R"({"input":"a","dimensions":0})", "dimensions"},
      {"/v1/embeddings", R"({"input":"a","model":7})", "model"},
      {"/v1/rerank", R"({"documents":["a"]})", "query"},
      {"/v1/rerank", R"({"query":"a"})", "documents"},
      {"/v1/rerank", R"({"query":"a","documents":[]})", "documents"},
      {"/v1/rerank", R"({"query":"a","documents":"b"})", "documents"},
      {"/v1/rerank", R"({"query":"a","documents":[7]})", "documents"},
      {"/v1/rerank", R"({"query":"a","documents":["b"],"texts":["c"]})", "documents"},
      {"/v1/rerank", R"({"query":"a","documents":[)" + many + "]}", "documents"},
      {"/v1/rerank", R"({"query":"a","documents":["b"],"top_n":-1})", "top_n"},
      {"/v1/rerank", R"({"query":"a","documents":["b"],"return_documents":7})", "return_documents"},
  };
  for (const auto& [path, body, param] : cases) {
    INFO(path << ' ' << body.substr(0, 100));
    const bool is_rerank = std::string(path) == "/v1/rerank";
    const Answer answer = (is_rerank ? scoring : server).ask("POST", path, body);
    CHECK(answer.status == 400);
    CHECK(json::parse(answer.body)["error"]["param"] == param);
  }
}

TEST_CASE("a list of one prompt in tokens is that prompt") {
  const ApiServer server;
  const json one = server.post("/v1/completions", R"({"prompt":[1,2],"seed":3,"max_tokens":9})");
  const json list = server.post("/v1/completions", R"({"prompt":[[1,2]],"seed":3,"max_tokens":9})");
  CHECK(list["choices"] == one["choices"]);
  CHECK(list["usage"] == one["usage"]);
}

TEST_CASE("each of several prompts has the choices that it has alone") {
  const ApiServer server;
  const json prompts = {"hello", {1, 2, 3}, std::string(120, 'a'), "hello"};
  json body = {{"seed", 5}, {"max_tokens", 30}, {"logprobs", 1}};
  for (const int n : {1, 2}) {
    body["n"] = n;
    json expected = json::array();
    std::uint64_t read = 0, generated = 0;
    for (const json& prompt : prompts) {
      body["prompt"] = prompt;
      const json alone = batch_result("/v1/completions", body);
      read += alone["usage"]["prompt_tokens"].get<std::uint64_t>();
      generated += alone["usage"]["completion_tokens"].get<std::uint64_t>();
      for (json choice : alone["choices"]) {
        choice["index"] = expected.size();
        expected.push_back(choice);
      }
    }
    body["prompt"] = prompts;
    const json usage = {{"prompt_tokens", read},
                        {"completion_tokens", generated},
                        {"total_tokens", read + generated}};
    const json whole = server.post("/v1/completions", body.dump());
    CHECK(whole["choices"] == expected);
    CHECK(result_usage(whole) == usage);
    const json together =
        put_together(events_of(server.ask("POST", "/v1/completions", streamed(body).dump()).body));
    json all;
    all["choices"] = expected;
    CHECK(together["choices"] == plain_choices(all));
    CHECK(result_usage(together) == usage);
  }
  body.erase("seed");  // then the same prompt is drawn again
  body["prompt"] = {"hello", "hello"};
  const json drawn = server.post("/v1/completions", body.dump())["choices"];
  CHECK(drawn[0]["text"] != drawn[2]["text"]);
}

TEST_CASE("the texts of several prompts wait in the queue, and go with their client") {
  ApiOptions options;
  options.texts_max = 6;
  ApiServer server(std::move(options));
  const Answer many =
      server.ask("POST", "/v1/completions", R"({"prompt":["a","b","c","d"],"n":2})");
  CHECK(many.status == 400);
  const json error = json::parse(many.body)["error"];
  CHECK(error["param"] == "prompt");
  CHECK(error["message"].get<std::string>().find("6 texts at most (--queue)") != std::string::npos);
  server.gate.is_closed = true;
  {
    const std::string body = R"({"prompt":["a","b","c"],"n":2})";
    HttpClient client(server.port);
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    wait_for([&] { return server.service().statistics().accepted == 6; });
    CHECK(server.ask("POST", "/v1/completions", R"({"prompt":"a"})").status == 429);
  }
  wait_for([&] { return server.service().statistics().cancelled == 6; });
  server.gate.is_closed = false;
  server.post("/v1/completions", R"({"prompt":["a","b"],"max_tokens":3})");
  wait_for([&] { return server.allowance.used() == 0; });
}

TEST_CASE("the tasks of several prompts take their memory before there are more of them") {
  const ByteTokenizer tokenizer;
  TaskOptions options;
  options.positions_max = 10'000;
  options.defaults.tokens_max = 8000;
  const TaskMaker maker(tokenizer, options);
  json body = {{"prompt", json::array()},
               {"prediction", {{"type", "content"}, {"content", std::string(8000, 'p')}}}};
  for (int i = 0; i < 64; ++i) body["prompt"].push_back("a");
  constexpr std::uint64_t one_max = 700'000, most = 3'000'000;  // bytes
  std::uint64_t last = 0;
  const TextLimits limits{.texts_max = 64, .grow = [&](std::uint64_t bytes) {
                            CHECK(bytes > last);
                            CHECK(bytes - last < one_max);
                            last = bytes;
                            if (bytes > most) throw ApiError(503, "no memory");
                          }};
  CHECK_THROWS_AS(read_text_request(maker, TextRoute::completions, body.dump(), 1, limits),
                  ApiError);
  CHECK(last > most);
  CHECK(last < most + one_max);
}

TEST_CASE("what the server is and does can be read") {
  ApiServer server;
  const json models = json::parse(server.ask("GET", "/v1/models").body);
  CHECK(models["data"][0]["id"] == "fake");
  CHECK(json::parse(server.ask("GET", "/v1/models/fake").body)["id"] == "fake");
  CHECK(json::parse(server.ask("GET", "/v1/models/%66ake").body)["id"] == "fake");
  CHECK(server.ask("GET", "/v1/models/%6").status == 404);
  const json props = json::parse(server.ask("GET", "/props").body);
  CHECK(props["total_slots"] == 4);
  CHECK(props["context"] == positions_max);
  CHECK(props["has_chat"] == true);
  server.post("/v1/completions", R"({"prompt":"abc","max_tokens":4,"min_tokens":4})");
  const std::string metrics = server.ask("GET", "/metrics").body;
  CHECK(metrics.find("\nsluice_generated_tokens_total 4\n") != std::string::npos);
  CHECK(metrics.find("\nsluice_first_token_seconds_count 1\n") != std::string::npos);
  CHECK(metrics.find("\nsluice_between_tokens_seconds_count 3\n") != std::string::npos);
  CHECK(metrics.find("sluice_answers_total{status=\"2xx\"} ") != std::string::npos);
  CHECK(json::parse(server.ask("GET", "/slots").body).empty());
  server.gate.is_closed = true;
  HttpClient client(server.port);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n" +
              std::string(R"({"prompt":"a"})"));
  wait_for([&] { return server.service().statistics().accepted == 2; });
  const json slots = json::parse(server.ask("GET", "/slots").body);
  REQUIRE(slots.size() == 1);
  CHECK(slots[0]["state"] == "waiting");
  CHECK(slots[0]["prompt_tokens"] == 2);
}

TEST_CASE("the page brings all that it needs, and its policy allows nothing else") {
  const ApiServer server;
  const Answer page = server.ask("GET", "/");
  CHECK(page.field("Content-Type") == "text/html; charset=utf-8");
  const std::string policy = page.field("Content-Security-Policy");
  const std::size_t begin = policy.find("script-src 'nonce-") + 18;
  const std::string nonce = policy.substr(begin, policy.find('\'', begin) - begin);
  CHECK(nonce.size() == 24);
  CHECK(page.body.find("<script nonce=\"" + nonce + "\">") != std::string::npos);
  CHECK(page.body.find("{{") == std::string::npos);
  CHECK(page.body.find("http://") == std::string::npos);
  CHECK(page.body.find("https://") == std::string::npos);
  CHECK(server.ask("GET", "/").field("Content-Security-Policy") != policy);
}

TEST_CASE("a log has no text of requests in it") {
  std::mutex mutex;
  std::vector<std::string> lines;
  ApiOptions options;
  options.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  {
    const ApiServer server(std::move(options));
    server.post("/v1/completions", R"({"prompt":"a secret","max_tokens":3})");
    server.ask("GET", "/secret/path?secret=1");
    server.ask("SECRET", "/health");
    HttpClient client(server.port);
    client.send("secret\r\n\r\n");
    CHECK(client.read_answer().status == 400);
    // A connection may write its line after the next one has begun, or as "gone" in a server that
    // ends before it knows that all was sent.
    wait_for([&] {
      const std::lock_guard lock(mutex);
      return lines.size() == 4;
    });
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  INFO(all);
  CHECK(all.find(" POST /v1/completions 200 ") != std::string::npos);
  CHECK(all.find(" prompt tokens, 3 generated, the first after ") != std::string::npos);
  CHECK(all.find(" GET ? 404 ") != std::string::npos);
  CHECK(all.find(" ? ? 405 ") != std::string::npos);
  CHECK(all.find(" ms, malformed HTTP in the header of the request: ") != std::string::npos);
  CHECK(all.find("secret") == std::string::npos);
  CHECK(all.find("SECRET") == std::string::npos);
}
