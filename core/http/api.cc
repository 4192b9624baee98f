#include "core/http/api.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/http/embeddings.h"
#include "core/http/model_metrics.h"
#include "core/http/page.h"
#include "core/http/text_request.h"
#include "core/http/token_requests.h"
#include "topology/process_memory.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t aside_max = 64;
constexpr std::size_t echoes_bytes_max = std::size_t{8} << 20;

Response json_response(const ordered_json& json) {
  return {.body = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)};
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

std::string_view state_name(serve::Service::State state) {
  using State = serve::Service::State;
  switch (state) {
    case State::loading:
      return "loading";
    case State::ready:
      return "ok";
    case State::draining:
      return "stopping";
    case State::stopped:
      return "stopped";
    case State::failed:
      return "failed";
  }
  return "failed";
}

// Throws ApiError where the file asks for what a decoder does not have.
rows::Pooling pooling_in(const engine::EngineFacts& facts) {
  try {
    return rows::pooling_of(facts.pooling_type);
  } catch (const Error& error) {
    throw ApiError(501, error.what());
  }
}

// The part of a path between the second slash after "/v1" and the next one: the id in
// "/v1/files/ID/content".
std::string id_in(const std::string& path) {
  const std::size_t begin = path.find('/', std::string_view("/v1/").size()) + 1;
  return path.substr(begin, path.find('/', begin) - begin);
}

}  // namespace

struct Api::Route {
  std::string_view method;
  std::string_view path;
  void (Api::*answer)(const ExchangePointer& exchange);
  std::uint64_t body_bytes_max = 0;
  bool is_open = false;    // without a key
  bool is_upload = false;  // the body goes to a file
};

// What belongs to a model that runs.
struct Api::Running {
  Running(ServedModel given, std::function<void(std::function<void()>)> post)
      : model(std::move(given)),
        host{.service = *model.service, .model_name = model.name, .post = std::move(post)} {}

  ServedModel model;
  GenerationHost host;
  std::list<std::weak_ptr<Generation>> generations;  // also some that have ended
};

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> table = {
      {"GET", "/", &Api::answer_page, 0, true},
      {"GET", "/health", &Api::answer_health, 0, true},
      {"GET", "/v1/models", &Api::answer_models},
      {"GET", "/v1/models/{}", &Api::answer_model},
      {"POST", "/v1/chat/completions", &Api::answer_chat, text_body_bytes_max},
      {"POST", "/v1/completions", &Api::answer_completion, text_body_bytes_max},
      {"POST", "/v1/responses", &Api::answer_response, text_body_bytes_max},
      {"POST", "/v1/embeddings", &Api::answer_embeddings, text_body_bytes_max},
      {"POST", "/tokenize", &Api::answer_tokenize, text_body_bytes_max},
      {"POST", "/detokenize", &Api::answer_detokenize, text_body_bytes_max},
      {"GET", "/props", &Api::answer_props},
      {"GET", "/slots", &Api::answer_slots},
      {"GET", "/metrics", &Api::answer_metrics},
      {"POST", "/v1/files", &Api::answer_upload, upload_bytes_max, false, true},
      {"GET", "/v1/files", &Api::answer_files},
      {"GET", "/v1/files/{}", &Api::answer_file},
      {"GET", "/v1/files/{}/content", &Api::answer_content},
      {"DELETE", "/v1/files/{}", &Api::answer_deletion},
      {"POST", "/v1/batches", &Api::answer_new_batch, text_body_bytes_max},
      {"GET", "/v1/batches", &Api::answer_batches},
      {"GET", "/v1/batches/{}", &Api::answer_batch},
      {"POST", "/v1/batches/{}/cancel", &Api::answer_cancellation, text_body_bytes_max},
  };
  return table;
}

const Api::Route* Api::find_route(std::string_view method, std::string_view path) {
  if (method == "HEAD") method = "GET";
  for (const Route& route : routes()) {
    if (route.method == method && matches(route.path, path)) return &route;
  }
  return nullptr;
}

// Throws ApiError where there is none.
const Api::Route& Api::route_of(const RequestHead& head) {
  if (const Route* route = find_route(head.method, head.path)) return *route;
  const bool has_other_method = std::ranges::any_of(
      routes(), [&](const Route& route) { return matches(route.path, head.path); });
  if (has_other_method) {
    throw ApiError(405, fmt::format("{} cannot be used with the method {}",
                                    head.path.substr(0, 100), head.method.substr(0, 20)));
  }
  throw ApiError(404, fmt::format("there is no {} here", head.path.substr(0, 100)));
}

std::uint64_t api_bytes(const ApiOptions& options) {
  constexpr std::uint64_t thread = std::uint64_t{512} << 10;  // stacks of the two threads
  constexpr std::uint64_t request = std::uint64_t{16} << 10;  // without its tasks
  return 2 * thread + options.texts_max * request + echoes_bytes_max;
}

Api::Api(ApiOptions options)
    : options_(std::move(options)), rate_(options_.keys.size(), options_.requests_per_minute) {}

Api::~Api() = default;

void Api::attach(Server& server) {
  server_ = &server;
}

void Api::post(std::function<void()> work) {
  server_->post(std::move(work));
}

void Api::set_model(ServedModel model) {
  post([this, model = std::move(model)]() mutable {
    running_ = std::make_unique<Running>(
        std::move(model), [this](std::function<void()> work) { post(std::move(work)); });
  });
}

Api::Running& Api::model() {
  if (!running_) throw ApiError(503, "the model is being loaded: try again later", "loading", 1);
  return *running_;
}

void Api::check_client(const RequestHead& head, const Route& route) {
  std::size_t key = 0;
  if (!route.is_open && !options_.keys.empty()) {
    const auto found = options_.keys.find(bearer_key(head.field("Authorization")));
    if (!found) {
      throw ApiError(401, "this server needs an API key: send \"Authorization: Bearer KEY\"");
    }
    key = *found;
  }
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
    if (route.is_upload) reception.sink = jobs().begin_upload(head);
  } catch (const ApiError& error) {
    refuse_with(error);
  }
  return reception;
}

void Api::handle(std::shared_ptr<Exchange> exchange) {
  try {
    (this->*route_of(exchange->request().head).answer)(exchange);
  } catch (const ApiError& error) {
    exchange->respond(error_response(error));
  }
}

Response Api::refuse(unsigned status, const std::string& reason) {
  return error_response(
      ApiError(status, reason, "", status == 503 ? std::optional(1U) : std::nullopt));
}

void Api::log(const Request& request, unsigned status, std::chrono::milliseconds took) {
  ++answers_[std::min(status / 100, 5U)];
  if (!options_.log) return;
  const Route* route = find_route(request.head.method, request.head.path);
  options_.log(fmt::format("{} {} {} {} {} ms", request.id,
                           route == nullptr ? "?" : request.head.method,
                           route == nullptr ? "?" : route->path,
                           status == 0 ? "gone" : std::to_string(status), took.count()));
}

// Calls `work` on the worker's thread, and answers with what it returns or throws.
void Api::work_aside(const ExchangePointer& exchange, std::function<Response()> work) {
  if (aside_ >= aside_max) throw ApiError(429, "too many requests wait: try again later", "", 1);
  ++aside_;
  worker_.post([this, exchange, work = std::move(work)] {
    auto response = std::make_shared<Response>();
    try {
      *response = work();
    } catch (const ApiError& error) {
      *response = error_response(error);
    } catch (const std::exception& error) {
      *response = error_response(ApiError(500, error.what()));
    }
    --aside_;
    post([exchange, response] { exchange->respond(std::move(*response)); });
  });
}

// Places among the texts that wait or run, until the last copy of the result is gone.
std::shared_ptr<void> Api::take_places(std::size_t count) {
  if (texts_ + count > options_.texts_max) {
    throw ApiError(429,
                   fmt::format("{} texts wait or run, and {} may (--queue): try again later",
                               texts_.load(), options_.texts_max),
                   "queue_full", 1);
  }
  texts_ += count;
  return {this, [count](Api* api) { api->texts_ -= count; }};
}

// Room for what an answer repeats of its request, until the last copy of the result is gone.
std::shared_ptr<void> Api::take_room(std::size_t echo_bytes) {
  if (echoes_bytes_ + echo_bytes > echoes_bytes_max) {
    throw ApiError(429, "answers under way repeat too much of their requests: try again later",
                   "queue_full", 1);
  }
  echoes_bytes_ += echo_bytes;
  return {this, [echo_bytes](Api* api) { api->echoes_bytes_ -= echo_bytes; }};
}

void Api::generate(const ExchangePointer& exchange, TextRoute route) {
  const auto maker = model().model.maker;
  const auto asked = Generation::Clock::now();
  const auto is_gone = std::make_shared<bool>(false);
  exchange->on_gone([is_gone] { *is_gone = true; });
  worker_.post(
      [this, exchange, route, maker, asked, is_gone, place = take_places(1), number = ++numbers_] {
        auto request = std::make_shared<TextRequest>();
        auto problem = std::make_shared<std::optional<ApiError>>();
        try {
          *request = read_text_request(*maker, route, exchange->request().body, number);
        } catch (const ApiError& error) {
          *problem = error;
        } catch (const std::exception& error) {
          *problem = ApiError(500, error.what());
        }
        exchange->request().body = {};
        post([this, exchange, asked, is_gone, place, request, problem] {
          if (*is_gone) return;
          if (*problem) return exchange->respond(error_response(**problem));
          std::shared_ptr<Generation> generation;
          try {
            auto room = take_room(request->echo.size());
            generation =
                std::make_shared<Generation>(model().host, exchange, std::move(*request), asked);
            generation->hold({place, take_places(generation->choices() - 1), std::move(room)});
            generation->start();
          } catch (const ApiError& error) {
            return exchange->respond(error_response(error));
          }
          auto& generations = model().generations;
          std::erase_if(generations, [](const auto& other) { return other.expired(); });
          generations.push_back(generation);
        });
      });
}

void Api::answer_page(const ExchangePointer& exchange) {
  exchange->respond(page_response());
}

void Api::answer_health(const ExchangePointer& exchange) {
  serve::Service::Statistics now;
  if (running_) now = running_->model.service->statistics();
  const bool is_ready = now.state == serve::Service::State::ready;
  const bool is_in_trouble = is_ready && now.is_in_trouble;
  Response response =
      json_response({{"status", is_in_trouble ? "failing" : state_name(now.state)}});
  if (!is_ready || is_in_trouble || server_->is_stopping()) {
    response.status = 503;
    response.fields.push_back({"Retry-After", "1"});
  }
  exchange->respond(std::move(response));
}

namespace {

ordered_json model_json(const ServedModel& model) {
  const engine::EngineFacts& facts = model.service->engine().facts();
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "sluice"},
          {"meta",
           {{"architecture", facts.architecture},
            {"context", model.context == 0 ? ordered_json() : ordered_json(model.context)},
            {"vocabulary", facts.vocabulary},
            {"bytes", facts.weights_bytes}}}};
}

}  // namespace

void Api::answer_models(const ExchangePointer& exchange) {
  exchange->respond(json_response(
      {{"object", "list"}, {"data", ordered_json::array({model_json(model().model)})}}));
}

void Api::answer_model(const ExchangePointer& exchange) {
  constexpr std::string_view folder = "/v1/models/";
  const std::string_view name =
      std::string_view(exchange->request().head.path).substr(folder.size());
  if (name != model().model.name) {
    throw ApiError(404, "this server has no such model (GET /v1/models)", "model_not_found");
  }
  exchange->respond(json_response(model_json(model().model)));
}

void Api::answer_embeddings(const ExchangePointer& exchange) {
  const auto maker = model().model.maker;
  const rows::Pooling pooling = pooling_in(model().model.service->engine().facts());
  const auto is_gone = std::make_shared<bool>(false);
  exchange->on_gone([is_gone] { *is_gone = true; });
  worker_.post([this, exchange, maker, pooling, is_gone, number = ++numbers_,
                place = take_places(embeddings_together)] {
    auto request = std::make_shared<EmbeddingRequest>();
    auto problem = std::make_shared<std::optional<ApiError>>();
    try {
      *request = read_embedding_request(*maker, pooling, exchange->request().body, number);
    } catch (const ApiError& error) {
      *problem = error;
    } catch (const std::exception& error) {
      *problem = ApiError(500, error.what());
    }
    exchange->request().body = {};
    post([this, exchange, is_gone, place, request, problem] {
      if (*is_gone) return;
      if (*problem) return exchange->respond(error_response(**problem));
      http::answer_embeddings(model().host, exchange, std::move(*request), place);
    });
  });
}

void Api::answer_tokenize(const ExchangePointer& exchange) {
  const auto maker = model().model.maker;
  const tokenizer::Tokenizer& tokenizer = model().model.service->engine().tokenizer();
  work_aside(exchange, [exchange, maker, &tokenizer, number = ++numbers_] {
    return Response{.body = tokenize_answer(*maker, tokenizer, exchange->request().body, number)};
  });
}

void Api::answer_detokenize(const ExchangePointer& exchange) {
  const tokenizer::Tokenizer& tokenizer = model().model.service->engine().tokenizer();
  work_aside(exchange, [exchange, &tokenizer] {
    return Response{.body = detokenize_answer(tokenizer, exchange->request().body)};
  });
}

void Api::answer_props(const ExchangePointer& exchange) {
  const ServedModel& served = model().model;
  const engine::Engine& engine = served.service->engine();
  const plan::MemoryPlan& plan = engine.plan();
  ordered_json lines = ordered_json::array();
  for (const plan::Line& line : plan.lines) {
    lines.push_back(
        {{"name", line.name}, {"bytes", line.bytes}, {"kind", plan::kind_name(line.kind)}});
  }
  const rows::RowDefaults& defaults = served.maker->options().defaults;
  const sampling::SamplerOptions& sampler = defaults.openai_sampler;
  exchange->respond(json_response({{"model", served.name},
                                   {"context", model_json(served)["meta"]["context"]},
                                   {"total_slots", served.parallel},
                                   {"isa", engine.facts().isa},
                                   {"threads", engine.facts().threads},
                                   {"io", engine.facts().io},
                                   {"has_chat", served.maker->options().dialogue != nullptr},
                                   {"defaults",
                                    {{"max_tokens", defaults.tokens_max},
                                     {"temperature", sampler.temperature},
                                     {"top_p", sampler.top_p},
                                     {"top_k", sampler.top_k},
                                     {"min_p", sampler.min_p}}},
                                   {"plan",
                                    {{"lines", lines},
                                     {"total_bytes", plan.total_bytes()},
                                     {"budget_bytes", plan.budget.bytes}}}}));
}

// What runs, without its texts.
void Api::answer_slots(const ExchangePointer& exchange) {
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
  exchange->respond(json_response(list));
}

void Api::answer_metrics(const ExchangePointer& exchange) {
  MetricsText text;
  const ServerCounts& connections = server_->counts();
  text.gauge("sluice_ready", "Whether the model is loaded.", running_ ? 1 : 0)
      .gauge("sluice_connections", "Open connections.",
             static_cast<double>(connections.connections))
      .counter("sluice_connections_accepted_total", "Connections of all time.",
               static_cast<double>(connections.accepted))
      .counter("sluice_connections_refused_total", "Connections beyond the limit.",
               static_cast<double>(connections.refused))
      .counter("sluice_connections_cut_off_total", "Clients that read too slowly.",
               static_cast<double>(connections.cut_off))
      .gauge("sluice_texts", "Texts that wait or run.", static_cast<double>(texts_.load()));
  for (std::size_t i = 0; i < std::size(answers_); ++i) {
    text.counter("sluice_answers_total", "Answers by the first digit of their status.",
                 static_cast<double>(answers_[i]),
                 i == 0 ? "status=\"gone\"" : fmt::format("status=\"{}xx\"", i));
  }
  const topology::ProcessMemory memory = topology::read_process_memory();
  if (const auto bytes = memory.resident_bytes()) {
    text.gauge("sluice_memory_bytes", "Memory that the process holds.",
               static_cast<double>(*bytes));
  }
  if (running_) write_model_metrics(text, *running_->model.service, running_->host);
  exchange->respond({.type = "text/plain; version=0.0.4", .body = text.take()});
}

JobsApi& Api::jobs() const {
  if (options_.jobs == nullptr) {
    throw ApiError(501, "this server keeps no files and batches (--data)");
  }
  return *options_.jobs;
}

void Api::answer_upload(const ExchangePointer& exchange) {
  work_aside(exchange, [exchange] { return JobsApi::end_upload(*exchange->request().sink); });
}

void Api::answer_files(const ExchangePointer& exchange) {
  work_aside(exchange, [&jobs = jobs()] { return jobs.list_files(); });
}

void Api::answer_file(const ExchangePointer& exchange) {
  work_aside(exchange,
             [&jobs = jobs(), id = id_in(exchange->request().head.path)] { return jobs.file(id); });
}

void Api::answer_content(const ExchangePointer& exchange) {
  work_aside(exchange, [&jobs = jobs(), id = id_in(exchange->request().head.path)] {
    return jobs.file_content(id);
  });
}

void Api::answer_deletion(const ExchangePointer& exchange) {
  work_aside(exchange, [&jobs = jobs(), id = id_in(exchange->request().head.path)] {
    return jobs.delete_file(id);
  });
}

void Api::answer_new_batch(const ExchangePointer& exchange) {
  work_aside(exchange,
             [&jobs = jobs(), exchange] { return jobs.create_batch(exchange->request().body); });
}

void Api::answer_batches(const ExchangePointer& exchange) {
  work_aside(exchange, [&jobs = jobs()] { return jobs.list_batches(); });
}

void Api::answer_batch(const ExchangePointer& exchange) {
  work_aside(exchange, [&jobs = jobs(), id = id_in(exchange->request().head.path)] {
    return jobs.batch(id);
  });
}

void Api::answer_cancellation(const ExchangePointer& exchange) {
  work_aside(exchange, [&jobs = jobs(), id = id_in(exchange->request().head.path)] {
    return jobs.cancel_batch(id);
  });
}

}  // namespace sluice::http
