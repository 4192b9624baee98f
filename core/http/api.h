// The routes of the API, and who may use them.
//
// Until a model is given, requests that need one are answered with status 503, so that the server
// can listen while the model is loaded.
//
// Threads: the members of Handler are called on the server's thread; attach(), set_model() and
// set_problem() by any, the first before the server runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/api_error.h"
#include "core/http/generation.h"
#include "core/http/jobs_api.h"
#include "core/http/keys.h"
#include "core/http/origins.h"
#include "core/http/server.h"
#include "core/http/worker.h"
#include "core/rows/task_maker.h"
#include "core/serve/service.h"

namespace sluice::http {

struct ApiOptions {
  ApiKeys keys;
  OriginRules origins;
  double requests_per_minute = 0;  // of each key (or of all without keys); 0: any number
  std::size_t texts_max = 64;      // that wait or run; a request may want several
  // Called with a line for each request: its id, method, route, status and time; no path of a file
  // and no prompt is in it. Empty: no log.
  std::function<void(const std::string& line)> log;
  JobsApi* jobs = nullptr;  // null: there are no files and batches. Outlives the API
};

// A model that runs. `service` must outlive the server's run.
struct ServedModel {
  serve::Service* service = nullptr;
  std::shared_ptr<const rows::TaskMaker> maker;
  std::string name;
  std::uint64_t created = 0;  // seconds since 1970
  std::uint32_t parallel = 1;
  std::uint32_t context = 0;  // 0: no end
};

// The most memory that the API holds besides connections and rows, for the plan.
std::uint64_t api_bytes(const ApiOptions& options);

class Api final : public Handler {
 public:
  explicit Api(ApiOptions options);
  ~Api() override;

  void attach(Server& server);
  void set_model(ServedModel model);

  Reception receive(const RequestHead& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  Response refuse(unsigned status, const std::string& reason) override;
  void log(const Request& request, unsigned status, std::chrono::milliseconds took) override;

 private:
  struct Route;
  struct Running;
  using ExchangePointer = std::shared_ptr<Exchange>;

  static const std::vector<Route>& routes();
  static const Route* find_route(std::string_view method, std::string_view path);
  static const Route& route_of(const RequestHead& head);

  void check_client(const RequestHead& head, const Route& route);
  Running& model();
  void post(std::function<void()> work);
  JobsApi& jobs() const;
  void work_aside(const ExchangePointer& exchange, std::function<Response()> work);
  std::shared_ptr<void> take_places(std::size_t count);
  std::shared_ptr<void> take_room(std::size_t echo_bytes);
  void generate(const ExchangePointer& exchange, TextRoute route);

  void answer_page(const ExchangePointer& exchange);
  void answer_health(const ExchangePointer& exchange);
  void answer_models(const ExchangePointer& exchange);
  void answer_model(const ExchangePointer& exchange);
  void answer_chat(const ExchangePointer& exchange) { generate(exchange, TextRoute::chat); }
  void answer_completion(const ExchangePointer& exchange) {
    generate(exchange, TextRoute::completions);
  }
  void answer_response(const ExchangePointer& exchange) {
    generate(exchange, TextRoute::responses);
  }
  void answer_embeddings(const ExchangePointer& exchange);
  void answer_tokenize(const ExchangePointer& exchange);
  void answer_detokenize(const ExchangePointer& exchange);
  void answer_props(const ExchangePointer& exchange);
  void answer_slots(const ExchangePointer& exchange);
  void answer_metrics(const ExchangePointer& exchange);
  void answer_upload(const ExchangePointer& exchange);
  void answer_files(const ExchangePointer& exchange);
  void answer_file(const ExchangePointer& exchange);
  void answer_content(const ExchangePointer& exchange);
  void answer_deletion(const ExchangePointer& exchange);
  void answer_new_batch(const ExchangePointer& exchange);
  void answer_batches(const ExchangePointer& exchange);
  void answer_batch(const ExchangePointer& exchange);
  void answer_cancellation(const ExchangePointer& exchange);

  ApiOptions options_;
  RateLimit rate_;
  Server* server_ = nullptr;
  std::atomic<std::size_t> texts_{0};         // that wait or run
  std::atomic<std::size_t> echoes_bytes_{0};  // what answers under way repeat of their requests
  std::atomic<std::size_t> aside_{0};         // requests that the worker has, other than for text
  std::uint64_t numbers_ = 0;                 // of requests for text
  std::uint64_t answers_[6] = {};             // by the hundreds of their status; 0: given up
  std::unique_ptr<Running> running_;
  Worker worker_;  // destroyed first
};

}  // namespace sluice::http
