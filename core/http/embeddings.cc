#include "core/http/embeddings.h"

#include <bit>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <variant>

#include "core/http/api_error.h"
#include "core/rows/row_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;
using rows::RowJson;
using tokenizer::Token;

std::vector<Token> tokens_of(const RowJson& array) {
  std::vector<Token> tokens;
  for (const RowJson& item : array) {
    tokens.push_back(
        static_cast<Token>(rows::count_of(item, "input", std::numeric_limits<Token>::max())));
  }
  return tokens;
}

rows::Prompt prompt_of(const RowJson& item) {
  if (item.is_string()) return item.get<std::string>();
  if (item.is_array() && !item.empty()) return tokens_of(item);
  rows::throw_wrong_type("input", "a text, token ids, or an array of these", item);
}

std::vector<rows::Prompt> prompts_of(const RowJson& input) {
  if (!input.is_array() || (!input.empty() && input[0].is_number())) return {prompt_of(input)};
  if (input.empty()) throw rows::BadRow("\"input\" is empty");
  if (input.size() > embedding_inputs_max) {
    throw rows::BadRow(
        fmt::format("\"input\" has {} texts, the most is {}", input.size(), embedding_inputs_max));
  }
  std::vector<rows::Prompt> prompts;
  for (const RowJson& item : input) prompts.push_back(prompt_of(item));
  return prompts;
}

void check_members(const RowJson& body) {
  for (const auto& item : body.items()) {
    const std::string& name = item.key();
    const bool is_known = name == "input" || name == "model" || name == "encoding_format" ||
                          name == "user" || (name == "dimensions" && item.value().is_null());
    if (is_known) continue;
    throw rows::BadRow(fmt::format("\"{}\" is {}", name.substr(0, 100),
                                   name == "dimensions" ? "not supported" : "unknown"));
  }
}

static_assert(std::endian::native == std::endian::little, "base64 has little-endian floats");

// The inputs of one request on their way.
class EmbeddingAnswer : public std::enable_shared_from_this<EmbeddingAnswer> {
 public:
  EmbeddingAnswer(GenerationHost& host, std::shared_ptr<Exchange> exchange,
                  EmbeddingRequest request, std::shared_ptr<void> held)
      : host_(host),
        exchange_(std::move(exchange)),
        request_(std::move(request)),
        held_(std::move(held)),
        embeddings_(request_.tasks.size()) {}

  void start() {
    exchange_->on_gone([self = shared_from_this()] { self->cancel(); });
    for (std::size_t i = 0; i < embeddings_together; ++i) submit_next();
  }

 private:
  void submit_next() {
    if (next_ == request_.tasks.size() || is_over_) return;
    const std::size_t index = next_++;
    serve::Events events;
    events.on_done = [self = shared_from_this(), index](const rows::Task& task,
                                                        const rows::Outcome& outcome) {
      self->host_.post([self, index, id = task.id, outcome = outcome]() mutable {
        self->take(index, id, std::move(outcome));
      });
    };
    const auto accepted = host_.service.submit(std::move(request_.tasks[index]), std::move(events));
    if (const auto* id = std::get_if<std::uint64_t>(&accepted)) {
      running_.insert(*id);
      return;
    }
    fail(ApiError(503, "the server takes no more requests: try again later", "", 1));
  }

  void take(std::size_t index, std::uint64_t id, rows::Outcome outcome) {
    running_.erase(id);
    if (is_over_) return;
    if (outcome.end != rows::Outcome::End::completed) {
      const bool is_cancelled = outcome.end == rows::Outcome::End::cancelled;
      return fail(ApiError(is_cancelled ? 503 : 500, outcome.problem));
    }
    prompt_tokens_ += outcome.completion.prompt_tokens;
    embeddings_[index] = std::move(outcome.completion.embedding);
    if (++done_ == embeddings_.size()) return respond();
    submit_next();
  }

  void respond() {
    ordered_json list = ordered_json::array();
    for (const std::vector<float>& embedding : embeddings_) {
      ordered_json item = {{"object", "embedding"}, {"index", list.size()}};
      if (request_.wants_base64) {
        item["embedding"] = base64(
            {reinterpret_cast<const char*>(embedding.data()), embedding.size() * sizeof(float)});
      } else {
        item["embedding"] = embedding;
      }
      list.push_back(std::move(item));
    }
    const ordered_json answer = {
        {"object", "list"},
        {"data", std::move(list)},
        {"model", request_.model.empty() ? host_.model_name : request_.model},
        {"usage", {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}}}};
    is_over_ = true;
    held_.reset();
    exchange_->respond(
        {.body = answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace)});
  }

  void fail(const ApiError& error) {
    if (is_over_) return;
    cancel();
    exchange_->respond(error_response(error));
  }

  void cancel() {
    is_over_ = true;
    held_.reset();
    for (const std::uint64_t id : running_) host_.service.cancel(id);
  }

  GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;
  EmbeddingRequest request_;
  std::shared_ptr<void> held_;
  std::vector<std::vector<float>> embeddings_;
  std::set<std::uint64_t> running_;
  std::size_t next_ = 0, done_ = 0;
  std::uint64_t prompt_tokens_ = 0;
  bool is_over_ = false;
};

}  // namespace

EmbeddingRequest read_embedding_request(const rows::TaskMaker& maker, rows::Pooling pooling,
                                        std::string_view body, std::uint64_t number) {
  EmbeddingRequest request;
  try {
    const RowJson json = rows::parse_row_object(
        body, {rows::row_values_max, rows::row_members_max, rows::row_depth_max});
    check_members(json);
    const RowJson* input = rows::find_member(json, "input");
    if (input == nullptr) throw rows::BadRow("\"input\" is missing");
    if (const RowJson* model = rows::find_member(json, "model")) {
      request.model = rows::text_of(*model, "model");
    }
    if (const RowJson* format = rows::find_member(json, "encoding_format")) {
      request.wants_base64 = *format == "base64";
      if (!request.wants_base64 && *format != "float") {
        throw rows::BadRow("\"encoding_format\" can only be \"float\" or \"base64\"");
      }
    }
    for (const rows::Prompt& prompt : prompts_of(*input)) {
      auto made = maker.make_embedding(prompt, request.model, number, pooling);
      if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
        throw ApiError(400, fmt::format("input {}: {}", request.tasks.size(), refused->reason),
                       refused->code == "prompt_too_long" ? "context_length_exceeded" : "");
      }
      request.tasks.push_back(std::move(std::get<rows::Task>(made)));
      request.tasks.back().priority = rows::Priority::interactive;
    }
  } catch (const rows::BadRow& bad) {
    throw ApiError(400, bad.what());
  }
  return request;
}

void answer_embeddings(GenerationHost& host, std::shared_ptr<Exchange> exchange,
                       EmbeddingRequest request, std::shared_ptr<void> held) {
  std::make_shared<EmbeddingAnswer>(host, std::move(exchange), std::move(request), std::move(held))
      ->start();
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const bool is_there = at + i < bytes.size();
      group = group << 8U | (is_there ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const bool is_padding = at + i > bytes.size();
      text += is_padding ? '=' : letters[group >> (18 - 6 * i) & 63U];
    }
  }
  return text;
}

}  // namespace sluice::http
