// The routes of the API, and who may use them.
//
// Until a model is given, requests that need one are answered with status 503, so that the server
// can listen while the model is loaded.
//
// What a request holds comes out of the server's allowance from its body to the end of its answer,
// and its texts take places of the queue.
//
// Threads: the members of Handler are called on the server's thread, but for report(); attach() and
// set_model() by any, the first before the server runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/allowance.h"
#include "core/http/api/embeddings.h"
#include "core/http/api/generation.h"
#include "core/http/api/keys.h"
#include "core/http/api/origins.h"
#include "core/http/api/served_model.h"
#include "core/http/jobs/jobs_api.h"
#include "core/http/transport/server.h"

namespace sluice::http {

struct ApiOptions {
  ApiKeys keys;
  OriginRules origins;
  double requests_per_minute = 0;  // of each key (or of all without keys); 0: any number
  std::size_t texts_max = 64;      // that wait or run; a request may want several
  // Called with a line for each request: its id, method, route, status and time; no path of a file
  // and no prompt is in it. Empty: no log.
  std::function<void(const std::string& line)> log;
  // Called with a line, by any thread, when a request has failed in a way that its client is not
  // told. May be empty.
  std::function<void(const std::string& line)> on_trouble;
  JobsApi* jobs = nullptr;  // null: there are no files and batches. Outlives the API
};

class Api final : public Handler {
 public:
  // `allowance` is that of the server. Both it and the API must outlive the server.
  Api(ApiOptions options, Allowance& allowance);
  ~Api() override;

  void attach(Server& server);
  void set_model(ServedModel model);

  Reception receive(const RequestHead& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  Response refuse(const ApiError& error) override;
  void report(const std::string& problem) override;
  void log(const Request& request, unsigned status, std::chrono::milliseconds took) override;

 private:
  struct Running;
  using ExchangePointer = std::shared_ptr<Exchange>;
  using Answer = std::function<void(const ExchangePointer& exchange)>;

  enum class Access { open, with_key };
  struct Route {
    std::string_view method;
    std::string_view path;  // {} stands for one part
    Access access;
    std::uint64_t body_bytes_max;
    Answer answer;
    bool is_upload = false;  // the body goes to a file
  };

  std::vector<Route> make_routes();
  const Route* find_route(std::string_view method, std::string_view path) const;
  std::string methods_of(std::string_view path) const;
  const Route& route_of(const RequestHead& head) const;

  std::size_t key_of(const RequestHead& head) const;
  void check_client(const RequestHead& head, const Route& route);
  Running& model();
  JobsApi& jobs() const;
  std::optional<ApiError> problem_of(Exchange& exchange, const std::function<void()>& work);
  void aside(Lane lane, const ExchangePointer& exchange, std::function<Then()> work);
  Allowance::Held take_places(std::size_t count);
  void check_memory(std::uint64_t bytes) const;  // throws where no request could take so much
  Allowance::Held take_memory(std::uint64_t bytes);
  TasksGrow grown(const std::shared_ptr<GenerationHeld>& held);

  void generate(const ExchangePointer& exchange, TextRoute route);
  void embed(const ExchangePointer& exchange);
  void rerank(const ExchangePointer& exchange);
  using ReadVectors =
      std::function<EmbeddingRequest(const rows::TaskMaker& maker, std::string_view body,
                                     std::uint64_t number, const TasksGrow& grow)>;
  void answer_vectors(const ExchangePointer& exchange, ReadVectors read);
  Response health() const;
  Response slots();
  Response metrics();

  ApiOptions options_;
  Allowance& allowance_;
  Allowance texts_;  // that wait or run
  RateLimit rate_;
  Server* server_ = nullptr;
  const std::vector<Route> routes_;
  std::uint64_t numbers_ = 0;      // of requests for text
  std::uint64_t answers_[6] = {};  // by the hundreds of their status; 0: given up
  std::unique_ptr<Running> running_;
};

}  // namespace sluice::http
