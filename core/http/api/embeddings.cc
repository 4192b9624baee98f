#include "core/http/api/embeddings.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "core/http/api/api_error.h"
#include "core/rows/answer_body.h"
#include "core/rows/row_json.h"
#include "core/text/base64.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;
using rows::RowJson;

// Of an answer, for a client that reads slowly.
constexpr std::size_t waiting_bytes_max = std::size_t{128} << 10;

std::vector<rows::Prompt> prompts_of(const RowJson& input) {
  if (!input.is_array() || (!input.empty() && input[0].is_number()))
    return {rows::text_or_tokens(input, "input")};
  if (input.empty()) throw rows::BadRow("\"input\" is empty");
  if (input.size() > embedding_inputs_max) {
    throw rows::BadRow(
        fmt::format("\"input\" has {} texts, the most is {}", input.size(), embedding_inputs_max));
  }
  std::vector<rows::Prompt> prompts;
  for (const RowJson& item : input) prompts.push_back(rows::text_or_tokens(item, "input"));
  return prompts;
}

static_assert(std::endian::native == std::endian::little, "base64 has little-endian floats");

// The inputs of one request on their way.
class EmbeddingAnswer : public std::enable_shared_from_this<EmbeddingAnswer> {
 public:
  EmbeddingAnswer(GenerationHost& host, std::shared_ptr<Exchange> exchange,
                  EmbeddingRequest request, GenerationHeld held)
      : host_(host),
        exchange_(std::move(exchange)),
        request_(std::move(request)),
        held_(std::move(held)) {}

  void start() {
    exchange_->on_gone([self = shared_from_this()] { self->cancel(); });
    exchange_->on_sent([self = shared_from_this()] { self->write(); });
    submit();
  }

 private:
  // As many as may be held until it is their turn.
  void submit() {
    while (!is_over_ && next_ < request_.tasks.size() && next_ - written_ < held_.places.bytes()) {
      const std::size_t index = next_++;
      serve::Events events;
      events.on_done = [self = shared_from_this(), index](const rows::Task& task,
                                                          const rows::Outcome& outcome) {
        self->host_.post([self, index, id = task.id, outcome = outcome]() mutable {
          try {
            self->take(index, id, std::move(outcome));
          } catch (const std::exception& error) {
            self->fail(self->host_.failure(self->exchange_->request().id, error.what()));
          }
        });
      };
      const auto accepted =
          host_.service.submit(std::move(request_.tasks[index]), std::move(events));
      if (const auto* id = std::get_if<std::uint64_t>(&accepted)) {
        running_.insert(*id);
      } else {
        fail(ApiError(503, "the server takes no more requests: try again later", "", 1));
      }
    }
  }

  void take(std::size_t index, std::uint64_t id, rows::Outcome outcome) {
    running_.erase(id);
    if (is_over_) return;
    if (outcome.end != rows::Outcome::End::completed) {
      const bool is_cancelled = outcome.end == rows::Outcome::End::cancelled;
      return fail(ApiError(is_cancelled ? 503 : 500, outcome.problem));
    }
    prompt_tokens_ += outcome.completion.prompt_tokens;
    if (!has_begun_ && !hold_embeddings(outcome.completion.embedding.size())) {
      return fail(no_memory());
    }
    done_[index] = std::move(outcome.completion.embedding);
    if (request_.ranking) {
      written_ = done_.size();
      return written_ == request_.tasks.size() ? end_ranking() : submit();
    }
    if (request_.dimensions != 0) shorten(done_[index]);
    write();
  }

  // Of a model that was trained so, the first numbers of a vector are one by themselves.
  void shorten(std::vector<float>& vector) const {
    vector.resize(request_.dimensions);
    vector = rows::unit_vector(std::vector<double>(vector.begin(), vector.end()));
  }

  // Those that wait, and the text of one.
  bool hold_embeddings(std::size_t floats) {
    constexpr std::size_t text_bytes = 16;
    return held_.memory.resize(held_.memory.bytes() +
                               floats * (held_.places.bytes() * sizeof(float) + text_bytes));
  }

  void end_ranking() {
    is_over_ = true;
    const EmbeddingRequest::Ranking& ranking = *request_.ranking;
    std::vector<std::size_t> order(done_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto score_of = [this](std::size_t i) { return done_.at(i).front(); };
    std::ranges::stable_sort(order, std::greater<>(), score_of);
    if (ranking.top != 0 && ranking.top < order.size()) order.resize(ranking.top);
    ordered_json results = ordered_json::array();
    for (const std::size_t i : order) {
      const char* const name = ranking.is_plain_list ? "score" : "relevance_score";
      ordered_json& result = results.emplace_back(ordered_json{{"index", i}, {name, score_of(i)}});
      if (!ranking.has_texts) continue;
      if (ranking.is_plain_list) {
        result["text"] = ranking.texts[i];
      } else {
        result["document"] = {{"text", ranking.texts[i]}};
      }
    }
    const std::string& model = request_.model.empty() ? host_.model_name : request_.model;
    const ordered_json list = {
        {"model", model},
        {"object", "list"},
        {"usage", {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}}},
        {"results", results}};
    held_ = {};
    exchange_->respond({.body = rows::json_text(ranking.is_plain_list ? results : list)});
  }

  // Writes those whose turn it is, while the client takes them.
  void write() {
    while (!is_over_ && !done_.empty() && done_.begin()->first == written_ &&
           exchange_->waiting_bytes() < waiting_bytes_max) {
      std::string text = written_ != 0 ? "," : R"({"object":"list","data":[)";
      if (!std::exchange(has_begun_, true)) exchange_->begin_stream({}, "application/json");
      exchange_->send(text + item_text(written_, done_.begin()->second));
      done_.erase(done_.begin());
      ++written_;
    }
    if (is_over_) return;
    if (written_ == request_.tasks.size()) return end();
    submit();
  }

  std::string item_text(std::size_t index, std::span<const float> embedding) const {
    const std::string_view bytes(reinterpret_cast<const char*>(embedding.data()),
                                 embedding.size_bytes());
    return fmt::format(
        R"({{"object":"embedding","index":{},"embedding":{}}})", index,
        request_.wants_base64 ? '"' + text::to_base64(bytes) + '"' : rows::numbers_text(embedding));
  }

  void end() {
    is_over_ = true;
    held_ = {};
    const std::string& model = request_.model.empty() ? host_.model_name : request_.model;
    exchange_->send(
        fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                    rows::json_text(model), prompt_tokens_, prompt_tokens_));
    exchange_->end_stream();
  }

  // Of an answer that has begun, the client sees that it is not whole.
  void fail(const ApiError& error) {
    if (is_over_) return;
    cancel();
    if (has_begun_) return exchange_->give_up();
    exchange_->respond(error_response(error));
  }

  void cancel() {
    is_over_ = true;
    for (const std::uint64_t id : running_) host_.service.cancel(id);
  }

  GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;
  EmbeddingRequest request_;
  GenerationHeld held_;
  std::map<std::size_t, std::vector<float>> done_;  // and not written, by their index
  std::set<std::uint64_t> running_;
  std::size_t next_ = 0, written_ = 0;
  std::uint64_t prompt_tokens_ = 0;
  bool has_begun_ = false;
  bool is_over_ = false;
};

}  // namespace

std::uint64_t EmbeddingRequest::bytes() const {
  std::uint64_t bytes = tasks_bytes;
  // A text is held, and is written into the answer.
  if (ranking) {
    for (const std::string& text : ranking->texts) bytes += 8 * text.size();
  }
  return bytes;
}

namespace {

void add_task(const rows::TaskMaker& maker, const rows::Prompt& prompt, rows::Pooling pooling,
              std::uint64_t number, const TasksGrow& grow, EmbeddingRequest& request) {
  auto made = maker.make_embedding(prompt, request.model, number, pooling);
  if (const auto* row = std::get_if<rows::RefusedRow>(&made)) {
    if (row->code == rows::model_not_found) throw refused(row->code, row->reason);
    throw refused(row->code, fmt::format("input {}: {}", request.tasks.size(), row->reason));
  }
  request.tasks.push_back(std::get<rows::Task>(std::move(made)));
  request.tasks.back().priority = rows::Priority::interactive;
  request.tasks_bytes += rows::waiting_bytes(request.tasks.back());
  grow(request.tasks_bytes);
}

std::string model_in(const RowJson& json) {
  const RowJson* model = rows::find_member(json, "model");
  return model == nullptr ? "" : rows::text_of(*model, "model");
}

// A text, or an object that has one.
std::string document_text(const RowJson& document, std::string_view name) {
  if (!document.is_object()) return rows::text_of(document, name);
  const RowJson* text = rows::find_member(document, "text");
  if (text == nullptr) throw rows::BadRow(fmt::format("\"{}\" has an object without text", name));
  return rows::text_of(*text, name);
}

EmbeddingRequest::Ranking ranking_in(const RowJson& json) {
  EmbeddingRequest::Ranking ranking;
  const RowJson* documents = rows::find_member(json, "documents");
  ranking.is_plain_list = documents == nullptr;
  const char* const name = ranking.is_plain_list ? "texts" : "documents";
  if (documents == nullptr) documents = rows::find_member(json, name);
  if (documents == nullptr) throw rows::BadRow("\"documents\" is missing");
  if (!ranking.is_plain_list && rows::find_member(json, "texts") != nullptr) {
    throw rows::BadRow("\"documents\" and \"texts\" are both given: leave one out");
  }
  if (documents->is_array() && documents->empty()) {
    throw rows::BadRow(fmt::format("\"{}\" is empty", name));
  }
  if (!documents->is_array()) {
    rows::throw_wrong_type(name, "an array of texts", *documents);
  }
  if (documents->size() > embedding_inputs_max) {
    throw rows::BadRow(fmt::format("\"{}\" has {} texts, the most is {}", name, documents->size(),
                                   embedding_inputs_max));
  }
  for (const RowJson& document : *documents) ranking.texts.push_back(document_text(document, name));
  if (const RowJson* top = rows::find_member(json, "top_n")) {
    ranking.top = rows::count_of(*top, "top_n", std::numeric_limits<std::uint32_t>::max());
  }
  for (const char* wants : {"return_documents", "return_text"}) {
    const RowJson* flag = rows::find_member(json, wants);
    if (flag != nullptr) ranking.has_texts = rows::truth_of(*flag, wants);
  }
  return ranking;
}

}  // namespace

EmbeddingRequest read_embedding_request(const rows::TaskMaker& maker, rows::Pooling pooling,
                                        std::size_t numbers, std::string_view body,
                                        std::uint64_t number, const TasksGrow& grow) {
  EmbeddingRequest request;
  try {
    const RowJson json = rows::parse_row_object(body);
    rows::check_members(json, {"input", "model", "encoding_format", "user", "dimensions"});
    const RowJson* input = rows::find_member(json, "input");
    if (input == nullptr) throw rows::BadRow("\"input\" is missing");
    request.model = model_in(json);
    if (const RowJson* format = rows::find_member(json, "encoding_format")) {
      request.wants_base64 = *format == "base64";
      if (!request.wants_base64 && *format != "float") {
        throw rows::BadRow("\"encoding_format\" can only be \"float\" or \"base64\"");
      }
    }
    if (const RowJson* dimensions = rows::find_member(json, "dimensions")) {
      request.dimensions = rows::count_of(*dimensions, "dimensions", numbers, 1);
    }
    for (const rows::Prompt& prompt : prompts_of(*input)) {
      add_task(maker, prompt, pooling, number, grow, request);
    }
  } catch (const rows::BadRow& bad) {
    throw ApiError(400, bad.what());
  }
  return request;
}

EmbeddingRequest read_rerank_request(const rows::TaskMaker& maker, const rows::PairPrompt& pair,
                                     rows::Pooling pooling, std::string_view body,
                                     std::uint64_t number, const TasksGrow& grow) {
  EmbeddingRequest request;
  try {
    const RowJson json = rows::parse_row_object(body);
    rows::check_members(json, {"query", "documents", "texts", "top_n", "model", "return_documents",
                               "return_text", "user"});
    const RowJson* query = rows::find_member(json, "query");
    if (query == nullptr) throw rows::BadRow("\"query\" is missing");
    const std::string asked = rows::text_of(*query, "query");
    request.model = model_in(json);
    request.ranking = ranking_in(json);
    for (const std::string& text : request.ranking->texts) {
      add_task(maker, pair.encode(asked, text), pooling, number, grow, request);
    }
    if (!request.ranking->has_texts) request.ranking->texts.clear();
  } catch (const rows::BadRow& bad) {
    throw ApiError(400, bad.what());
  }
  return request;
}

void answer_embeddings(GenerationHost& host, std::shared_ptr<Exchange> exchange,
                       EmbeddingRequest request, GenerationHeld held) {
  std::make_shared<EmbeddingAnswer>(host, std::move(exchange), std::move(request), std::move(held))
      ->start();
}

}  // namespace sluice::http
