#include "core/http/api/api.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "core/error.h"
#include "core/http/api/api_error.h"
#include "core/http/api/embeddings.h"
#include "core/http/api/metrics.h"
#include "core/http/api/model_metrics.h"
#include "core/http/api/page.h"
#include "core/http/api/text_request.h"
#include "core/http/api/token_requests.h"
#include "core/rows/row_json.h"
#include "core/text/quoted.h"
#include "topology/process_memory.h"

namespace sluice::http {
namespace {

// Calls that may wait for a lane: several of each connection that there may be.
constexpr std::size_t aside_max = 256;

using nlohmann::ordered_json;

Response json_response(const ordered_json& json) {
  return {.body = rows::json_text(json)};
}

// Whether a path has the form of a pattern, in which {} stands for one part.
bool matches(std::string_view pattern, std::string_view path) {
  while (true) {
    const std::size_t place = pattern.find("{}");
    if (place == std::string_view::npos) return pattern == path;
    if (path.substr(0, place) != pattern.substr(0, place)) return false;
    path.remove_prefix(place);
    pattern.remove_prefix(place + 2);
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end == 0) return false;
    path.remove_prefix(end);
  }
}

// The part of a path between the second slash after "/v1" and the next one: the id in
// "/v1/files/ID/content".
std::string_view id_in(std::string_view path) {
  path.remove_prefix(path.find('/', std::string_view("/v1/").size()) + 1);
  return path.substr(0, path.find('/'));
}

// What JobsApi answers about the one that the path names.
template <auto member>
Response by_id(JobsApi& jobs, const Request& request) {
  return (jobs.*member)(id_in(request.head.path));
}

// Throws ApiError where the file asks for what a decoder does not have.
rows::Pooling pooling_in(const engine::EngineFacts& facts) {
  try {
    return rows::pooling_of(facts.pooling_type, facts.is_encoder);
  } catch (const Error& error) {
    throw ApiError(501, error.what());
  }
}

// Begins the upload with its first piece, on the thread for files.
class UploadSink final : public BodySink {
 public:
  UploadSink(JobsApi& jobs, RequestHead head) : jobs_(jobs), head_(std::move(head)) {}
  void take(std::string_view piece) override {
    if (!upload_) upload_ = jobs_.begin_upload(head_);
    upload_->take(piece);
  }
  Response end() {
    if (!upload_) throw ApiError(400, "the request has no body");
    return JobsApi::end_upload(*upload_);
  }

 private:
  JobsApi& jobs_;
  RequestHead head_;
  std::shared_ptr<BodySink> upload_;
};

}  // namespace

// What belongs to a model that runs.
struct Api::Running {
  Running(ServedModel given, Api& api)
      : model(std::move(given)),
        host{.service = *model.service,
             .model_name = model.name,
             .post = [&api](std::function<void()> work) { api.server_->post(std::move(work)); },
             .aside =
                 [&api](std::function<Then()> work) {
                   api.server_->aside(Lane::texts, std::move(work));
                 },
             .failure = [&api](const std::string& id,
                               const std::string& problem) { return api.failure(id, problem); }} {}

  ServedModel model;
  GenerationHost host;
  std::list<std::weak_ptr<Generation>> generations;  // also some that have ended
};

Api::Api(ApiOptions options, Allowance& allowance)
    : options_(std::move(options)),
      allowance_(allowance),
      texts_(options_.texts_max),
      rate_(options_.keys.size(), options_.requests_per_minute),
      routes_(make_routes()) {}

Api::~Api() = default;

std::vector<Api::Route> Api::make_routes() {
  const Answer rank = [this](const ExchangePointer& exchange) { rerank(exchange); };
  const auto now = [](auto answer) -> Answer {  // from what is known
    return [answer](const ExchangePointer& exchange) {
      exchange->respond(answer(exchange->request().head));
    };
  };
  const auto tokens = [this](auto answer) -> Answer {
    return [this, answer](const ExchangePointer& exchange) {
      const auto maker = model().model.maker;
      const tokenizer::Tokenizer& tokenizer = model().model.service->engine().tokenizer();
      aside(Lane::texts, exchange, [exchange, answer, maker, &tokenizer, number = ++numbers_] {
        auto body = answer(*maker, tokenizer, exchange->request().body, number);
        return [exchange, body] { exchange->respond({.body = body}); };
      });
    };
  };
  const auto job = [this](auto answer) -> Answer {
    return [this, answer](const ExchangePointer& exchange) {
      aside(Lane::files, exchange, [exchange, answer, &kept = jobs()] {
        const auto response = std::make_shared<Response>(answer(kept, exchange->request()));
        return [exchange, response] { exchange->respond(std::move(*response)); };
      });
    };
  };
  const auto text = [this](TextRoute route) -> Answer {
    return [this, route](const ExchangePointer& exchange) { generate(exchange, route); };
  };
  constexpr Access open = Access::open, key = Access::with_key;
  constexpr std::uint64_t none = 0, json = rows::request_bytes_max;
  return {
      {"GET", "/", open, none, now([](const RequestHead&) { return page_response(); })},
      {"GET", "/health", open, none, now([this](const RequestHead&) { return health(); })},
      {"GET", "/v1/models", key, none, now([this](const RequestHead&) {
         return json_response(
             {{"object", "list"}, {"data", ordered_json::array({model_json(model().model)})}});
       })},
      {"GET", "/v1/models/{}", key, none, now([this](const RequestHead& head) {
         if (percent_decoded(id_in(head.path)) == model().model.name) {
           return json_response(model_json(model().model));
         }
         throw ApiError(404, "this server has no such model (GET /v1/models)", "model_not_found");
       })},
      {"POST", "/v1/chat/completions", key, json, text(TextRoute::chat)},
      {"POST", "/v1/completions", key, json, text(TextRoute::completions)},
      {"POST", "/v1/responses", key, json, text(TextRoute::responses)},
      {"POST", "/v1/embeddings", key, json,
       [this](const ExchangePointer& exchange) { embed(exchange); }},
      {"POST", "/v1/rerank", key, json, rank},
      {"POST", "/rerank", key, json, rank},
      {"POST", "/v2/rerank", key, json, rank},
      {"POST", "/tokenize", key, json, tokens(tokenize_answer)},
      {"POST", "/detokenize", key, json,
       tokens([](const rows::TaskMaker&, const tokenizer::Tokenizer& tokenizer,
                 std::string_view body,
                 std::uint64_t) { return detokenize_answer(tokenizer, body); })},
      {"GET", "/props", key, none,
       now([this](const RequestHead&) { return json_response(props_json(model().model)); })},
      {"GET", "/slots", key, none, now([this](const RequestHead&) { return slots(); })},
      {"GET", "/metrics", key, none, now([this](const RequestHead&) { return metrics(); })},
      {"POST", "/v1/files", key, upload_bytes_max, job([](JobsApi&, Request& request) {
         const auto sink = std::exchange(request.sink, nullptr);
         if (!sink) throw ApiError(400, "the request has no body");
         return dynamic_cast<UploadSink&>(*sink).end();
       }),
       true},
      {"GET", "/v1/files", key, none, job([](JobsApi& jobs, const Request& request) {
         return jobs.list_files(request.head.query);
       })},
      {"GET", "/v1/files/{}", key, none, job(by_id<&JobsApi::file>)},
      {"GET", "/v1/files/{}/content", key, none, job(by_id<&JobsApi::file_content>)},
      {"DELETE", "/v1/files/{}", key, none, job(by_id<&JobsApi::delete_file>)},
      {"POST", "/v1/batches", key, json,
       job([](JobsApi& jobs, const Request& request) { return jobs.create_batch(request.body); })},
      {"GET", "/v1/batches", key, none, job([](JobsApi& jobs, const Request& request) {
         return jobs.list_batches(request.head.query);
       })},
      {"GET", "/v1/batches/{}", key, none, job(by_id<&JobsApi::batch>)},
      {"POST", "/v1/batches/{}/cancel", key, json, job(by_id<&JobsApi::cancel_batch>)},
  };
}

const Api::Route* Api::find_route(std::string_view method, std::string_view path) const {
  if (method == "HEAD") method = "GET";
  const auto found = std::ranges::find_if(routes_, [&](const Route& route) {
    return route.method == method && matches(route.path, path);
  });
  return found == routes_.end() ? nullptr : &*found;
}

// "GET, HEAD, POST"; empty where there is no such path.
std::string Api::methods_of(std::string_view path) const {
  std::string methods;
  for (const Route& route : routes_) {
    if (!matches(route.path, path)) continue;
    if (!methods.empty()) methods += ", ";
    methods += route.method;
    if (route.method == "GET") methods += ", HEAD";
  }
  return methods;
}

// Throws ApiError where there is none.
const Api::Route& Api::route_of(const RequestHead& head) const {
  if (const Route* route = find_route(head.method, head.path)) return *route;
  if (!methods_of(head.path).empty()) {
    throw ApiError(405, fmt::format("{} cannot be used with the method {}",
                                    text::escaped(head.path, 100), head.method.substr(0, 20)));
  }
  throw ApiError(404, fmt::format("there is no {} here", text::escaped(head.path, 100)));
}

void Api::attach(Server& server) {
  server_ = &server;
}

void Api::set_model(ServedModel model) {
  server_->post([this, model = std::move(model)]() mutable {
    running_ = std::make_unique<Running>(std::move(model), *this);
  });
}

Api::Running& Api::model() {
  if (!running_) throw ApiError(503, "the model is being loaded: try again later", "loading", 1);
  return *running_;
}

JobsApi& Api::jobs() const {
  if (options_.jobs == nullptr) {
    throw ApiError(501, "this server keeps no files and batches (--data)");
  }
  return *options_.jobs;
}

// Which of the server's keys a request shows; 0 where none is needed.
std::size_t Api::key_of(const RequestHead& head) const {
  if (options_.keys.empty()) return 0;
  const std::string_view shown = bearer_key(head.field("Authorization"));
  if (const auto found = options_.keys.find(shown)) return *found;
  throw ApiError(401, shown.empty()
                          ? "this server needs an API key: send \"Authorization: Bearer KEY\""
                          : "the API key is none of this server's: check it for typing errors");
}

void Api::check_client(const RequestHead& head, const Route& route) {
  const std::size_t key = route.access == Access::with_key ? key_of(head) : 0;
  if (head.method != "POST") return;
  if (const auto wait_s = rate_.take(key)) {
    throw ApiError(
        429, fmt::format("the key may make {} requests a minute", options_.requests_per_minute), "",
        *wait_s);
  }
}

Reception Api::receive(const RequestHead& head) {
  Reception reception;
  const auto refuse_with = [&](const ApiError& error) {
    reception.refusal = std::make_unique<Response>(error_response(error));
  };
  if (const auto problem = origin_problem(options_.origins, head)) {
    refuse_with(ApiError(403, *problem));
    return reception;
  }
  reception.fields = origin_fields(options_.origins, head);
  if (head.method == "OPTIONS") {
    reception.refusal = std::make_unique<Response>(Response{.status = 204, .body = {}});
    return reception;
  }
  try {
    const Route& route = route_of(head);
    check_client(head, route);
    reception.body_bytes_max = route.body_bytes_max;
    if (route.is_upload) reception.sink = std::make_shared<UploadSink>(jobs(), head);
  } catch (const ApiError& error) {
    refuse_with(error);
    if (error.status == 405) {
      reception.refusal->fields.push_back({"Allow", methods_of(head.path)});
    }
  }
  return reception;
}

void Api::handle(std::shared_ptr<Exchange> exchange) {
  route_of(exchange->request().head).answer(exchange);
}

Response Api::refuse(const ApiError& error) {
  return error_response(error);
}

void Api::report(const std::string& problem) {
  if (options_.on_trouble) options_.on_trouble(problem);
}

void Api::log(const Request& request, unsigned status, std::chrono::milliseconds took) {
  ++answers_[std::min(status / 100, 5U)];
  if (!options_.log) return;
  // The names of other methods and routes are text of the client.
  const std::string& method = request.head.method;
  const bool is_method =
      method == "HEAD" || method == "OPTIONS" ||
      std::ranges::any_of(routes_, [&](const Route& route) { return route.method == method; });
  const Route* route = find_route(method, request.head.path);
  options_.log(fmt::format("{} {} {} {} {} ms{}", request.id, is_method ? method : "?",
                           route == nullptr ? "?" : route->path,
                           status == 0 ? "gone" : std::to_string(status), took.count(),
                           request.note));
}

// What to tell the client of what `work` throws; nothing if it does not.
std::optional<ApiError> Api::problem_of(Exchange& exchange, const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const ApiError& error) {
    return error;
  } catch (const std::exception& error) {
    return failure(exchange.request().id, error.what());
  }
}

// Calls `work` on the thread of `lane`, and what it returns on the server's, unless the client has
// gone. What either throws becomes the answer; what they hold is free before the client has it, who
// may ask again at once.
void Api::aside(Lane lane, const ExchangePointer& exchange, std::function<Then()> work) {
  // Those of clients that have gone wait too, and hold what was read of them.
  if (server_->waiting(lane) >= aside_max) {
    throw ApiError(503, "too many requests wait to be read: try again later", "overloaded", 1);
  }
  server_->aside(lane, [this, exchange, work = std::move(work)]() mutable -> Then {
    if (exchange->is_gone()) return {};
    Then then;
    const auto problem = problem_of(*exchange, [&] { then = work(); });
    work = nullptr;
    return [this, exchange, then = std::move(then), problem]() mutable {
      if (exchange->is_gone()) return;
      const auto last = problem ? problem : problem_of(*exchange, then);
      then = nullptr;
      if (last) exchange->respond(error_response(*last));
    };
  });
}

// Places among the texts that wait or run.
Allowance::Held Api::take_places(std::size_t count) {
  auto places = texts_.take(count);
  if (places) return std::move(*places);
  throw ApiError(429,
                 fmt::format("{} texts wait or run, and {} may (--queue): try again later",
                             texts_.used(), texts_.bytes()),
                 "queue_full", 1);
}

void Api::check_memory(std::uint64_t bytes) const {
  if (bytes > allowance_.bytes_for_one()) {
    throw ApiError(400, fmt::format("the request needs {} bytes of memory, and the server has {}: "
                                    "ask for fewer choices, log probabilities, texts or tokens",
                                    bytes, allowance_.bytes_for_one()));
  }
}

Allowance::Held Api::take_memory(std::uint64_t bytes) {
  check_memory(bytes);
  auto held = allowance_.take(bytes);
  if (!held) throw no_memory();
  return std::move(*held);
}

// Makes what is held grow with the tasks of a request.
TasksGrow Api::grown(const std::shared_ptr<GenerationHeld>& held) {
  held->memory = take_memory(0);
  return [this, held](std::uint64_t bytes) {
    check_memory(bytes);
    if (!held->memory.resize(bytes)) throw no_memory();
  };
}

void Api::generate(const ExchangePointer& exchange, TextRoute route) {
  const engine::EngineFacts& facts = model().model.service->engine().facts();
  if (facts.is_encoder) throw ApiError(501, engine::no_text_of(facts.architecture));
  const auto maker = model().model.maker;
  const auto asked = Generation::Clock::now();
  const auto held = std::make_shared<GenerationHeld>();
  held->places = take_places(1);
  const auto group = static_cast<std::uint32_t>(key_of(exchange->request().head));
  aside(Lane::texts, exchange, [=, this, number = ++numbers_] {
    const auto request = std::make_shared<TextRequest>(
        read_text_request(*maker, route, exchange->request().body, number,
                          {.texts_max = options_.texts_max, .grow = grown(held)}));
    for (rows::Task& task : request->tasks) task.drafts_group = group;
    exchange->request().drop_body();
    held->memory = {};  // which may have come out of the reserve
    held->memory = take_memory(request->bytes());
    return [this, exchange, asked, held, request] {
      const std::size_t choices = request->choices();
      if (choices > 1) held->more_places = take_places(choices - 1);
      const auto generation = std::make_shared<Generation>(
          model().host, exchange, std::move(*request), asked, std::move(*held));
      generation->start();
      auto& generations = model().generations;
      std::erase_if(generations, [](const auto& other) { return other.expired(); });
      generations.push_back(generation);
    };
  });
}

void Api::embed(const ExchangePointer& exchange) {
  const engine::EngineFacts& facts = model().model.service->engine().facts();
  if (facts.makes_scores) {
    throw ApiError(501, "the model is a reranker and makes no vectors: ask /v1/rerank");
  }
  answer_vectors(exchange, [pooling = pooling_in(facts), numbers = facts.text_numbers](
                               const rows::TaskMaker& maker, std::string_view body,
                               std::uint64_t number, const TasksGrow& grow) {
    return read_embedding_request(maker, pooling, numbers, body, number, grow);
  });
}

void Api::rerank(const ExchangePointer& exchange) {
  const engine::Engine& engine = model().model.service->engine();
  const engine::EngineFacts& facts = engine.facts();
  if (!facts.makes_scores) {
    throw ApiError(501, "the model is no reranker: it has no tensor 'cls.output.weight'");
  }
  const auto pair =
      std::make_shared<const rows::PairPrompt>(engine.tokenizer(), facts.rerank_template);
  answer_vectors(exchange, [pooling = pooling_in(facts), pair](
                               const rows::TaskMaker& maker, std::string_view body,
                               std::uint64_t number, const TasksGrow& grow) {
    return read_rerank_request(maker, *pair, pooling, body, number, grow);
  });
}

void Api::answer_vectors(const ExchangePointer& exchange, ReadVectors read) {
  const auto maker = model().model.maker;
  const auto held = std::make_shared<GenerationHeld>();
  held->places = take_places(std::min(embeddings_together, options_.texts_max));
  aside(Lane::texts, exchange,
        [this, exchange, maker, read = std::move(read), held, number = ++numbers_] {
          const auto request = std::make_shared<EmbeddingRequest>(
              read(*maker, exchange->request().body, number, grown(held)));
          exchange->request().drop_body();
          held->memory = {};  // which may have come out of the reserve
          held->memory = take_memory(request->bytes());
          const std::uint64_t places = held->places.bytes();
          base::check(held->places.resize(std::min<std::uint64_t>(places, request->tasks.size())),
                      "places cannot be given back");
          return [this, exchange, held, request] {
            answer_embeddings(model().host, exchange, std::move(*request), std::move(*held));
          };
        });
}

Response Api::health() const {
  serve::Service::Statistics now;
  if (running_) now = running_->model.service->statistics();
  const bool is_ready = now.state == serve::Service::State::ready;
  const bool is_in_trouble = is_ready && now.is_in_trouble;
  const bool is_stopping = server_->is_stopping();
  const std::string_view state = is_stopping     ? "stopping"
                                 : is_in_trouble ? "failing"
                                                 : state_name(now.state);
  Response response = json_response({{"status", state}});
  if (!is_ready || is_in_trouble || is_stopping) {
    response.status = 503;
    response.fields.push_back({"Retry-After", "1"});
  }
  return response;
}

// What runs, without its texts.
Response Api::slots() {
  ordered_json list = ordered_json::array();
  for (const auto& weak : model().generations) {
    const auto generation = weak.lock();
    if (!generation || generation->has_ended()) continue;
    list.push_back({{"id", generation->id()},
                    {"state", generation->has_begun() ? "generating" : "waiting"},
                    {"prompt_tokens", generation->prompt_tokens()},
                    {"generated_tokens", generation->tokens()},
                    {"seconds", generation->seconds()}});
  }
  return json_response(list);
}

Response Api::metrics() {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  MetricsText text;
  const ServerCounts& connections = server_->counts();
  text.gauge("sluice_ready", "Whether the model is loaded.", running_ ? 1 : 0)
      .gauge("sluice_connections", "Open connections.", number(connections.connections))
      .counter("sluice_connections_accepted_total", "Connections of all time.",
               number(connections.accepted))
      .counter("sluice_connections_refused_total", "Connections beyond the limit.",
               number(connections.refused))
      .counter("sluice_connections_cut_off_total", "Clients that read too slowly.",
               number(connections.cut_off))
      .gauge("sluice_texts", "Texts that wait or run.", number(texts_.used()))
      .gauge("sluice_requests_bytes", "Of the memory for requests, what is taken.",
             number(allowance_.used()));
  for (std::size_t i = 0; i < std::size(answers_); ++i) {
    text.counter("sluice_answers_total", "Answers by the first digit of their status.",
                 number(answers_[i]),
                 i == 0 ? "status=\"gone\"" : fmt::format("status=\"{}xx\"", i));
  }
  const topology::ProcessMemory memory = topology::read_process_memory();
  if (const auto bytes = memory.resident_bytes()) {
    text.gauge("sluice_memory_bytes", "Memory that the process holds.", number(*bytes));
  }
  if (running_) write_model_metrics(text, *running_->model.service, running_->host);
  return {.type = "text/plain; version=0.0.4", .body = text.take()};
}

}  // namespace sluice::http
