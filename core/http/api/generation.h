// A request for text, from its tasks to the end of its answer, whole or as a stream.
//
// Threads: the server's alone. What the service calls on its own thread is posted to it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/allowance.h"
#include "core/http/api/answer_writer.h"
#include "core/http/api/metrics.h"
#include "core/http/api/text_request.h"
#include "core/http/transport/server.h"
#include "core/serve/service.h"

namespace sluice::http {

// What all generations share. Outlives them.
struct GenerationHost {
  serve::Service& service;
  std::string model_name;                            // of answers to requests that name no model
  std::function<void(std::function<void()>)> post;   // to the server's thread, from any
  std::function<void(std::function<Then()>)> aside;  // from the server's thread, as Server::aside()
  // What a client hears of something that has gone wrong in its request (Handler::failure()).
  std::function<ApiError(const std::string& request_id, const std::string& problem)> failure;
  TimeHistogram first_token = {};     // from the request to its first token
  TimeHistogram between_tokens = {};  // of one choice
};

// What a request holds until the service has let go of its texts.
struct GenerationHeld {
  Allowance::Held places = {}, more_places = {};  // among the texts that wait or run
  Allowance::Held memory = {};
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  using Clock = std::chrono::steady_clock;

  Generation(GenerationHost& host, std::shared_ptr<Exchange> exchange, TextRequest request,
             Clock::time_point asked, GenerationHeld held);

  // Submits the tasks, and sees to it that the answer is given. Throws ApiError when the service
  // does not take them.
  void start();

  // For /slots.
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t prompt_tokens() const { return prompt_tokens_; }
  bool has_ended() const { return has_ended_; }
  bool has_begun() const { return tokens_ != 0; }
  const std::string& id() const { return facts_.id; }
  double seconds() const;

 private:
  struct Choice {
    std::uint64_t task_id = 0;
    std::optional<chat::AnswerReader> reader;
    rows::Completion completion;
    std::optional<Clock::time_point> last_token;
    std::uint64_t text_offset = 0;  // characters whose log probabilities were sent
    bool is_first = true;           // nothing of it was sent
    bool is_done = false;
  };
  // A copy of rows::TokenEvent that may be kept.
  struct Token {
    std::string text;
    std::vector<sampling::TokenLogprob> logprobs;
    bool is_token = false;
    Clock::time_point when;
  };

  serve::Events events_for(std::size_t choice);
  void take_progress(const rows::PromptProgress& prompt);
  void take_token(std::size_t index, Token token);
  void take_end(std::size_t index, rows::Outcome outcome);
  void send_piece(std::size_t index, Piece piece);
  void end_choice(std::size_t index);
  void end_answer();
  std::vector<Field> fields() const;
  std::vector<rows::Completion> take_completions();
  void end_whole();
  Response whole();
  void post(std::function<void()> work);
  void fail(const ApiError& error);
  void cancel();
  void note_for_log();
  std::string logprobs_of(std::vector<sampling::TokenLogprob> logprobs,
                          std::uint64_t& text_offset) const;

  GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;
  Clock::time_point asked_;
  std::vector<rows::Task> tasks_;  // one for each prompt
  bool streams_;
  bool returns_progress_;
  AnswerFacts facts_;
  std::unique_ptr<AnswerWriter> writer_;
  std::uint64_t prompt_tokens_ = 0;
  std::vector<Choice> choices_;
  std::atomic<std::uint64_t> tokens_{0};
  std::optional<double> first_token_s_;
  bool has_ended_ = false;
  GenerationHeld held_;
};

}  // namespace sluice::http
