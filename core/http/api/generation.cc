#include "core/http/api/generation.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <fmt/format.h>
#include <utility>
#include <variant>

#include "core/constrain/grammar_error.h"
#include "core/http/api/api_error.h"
#include "core/rows/answer_body.h"

namespace sluice::http {
namespace {

// What tells a request from all others, of this server and of those before.
std::string unique_part(const std::string& request_id) {
  return request_id.substr(request_id.find('_') + 1);
}

AnswerFacts facts_of(const std::vector<rows::Task>& tasks, const TextRequest& request,
                     const GenerationHost& host, const std::string& request_id) {
  const rows::RowHeader& header = tasks.front().header;
  const bool is_chat = header.form == rows::Form::chat;
  const char* kind = !request.echo.empty() ? "resp_" : is_chat ? "chatcmpl-" : "cmpl-";
  return {.form = header.form,
          .id = kind + unique_part(request_id),
          .created = static_cast<std::uint64_t>(std::time(nullptr)),
          .model = header.model.empty() ? host.model_name : header.model,
          .prompts = tasks.size(),
          .includes_usage = request.includes_usage};
}

// Of a text that was not completed. One that its own grammar has ended would end so again, and
// there are clients that send again what has failed with status 500.
unsigned status_of(const rows::Outcome& outcome) {
  if (outcome.end == rows::Outcome::End::cancelled) return 503;
  try {
    if (outcome.cause) std::rethrow_exception(outcome.cause);
  } catch (const constrain::GrammarError&) {
    return 400;
  } catch (...) {  // none of the client's business
  }
  return 500;
}

}  // namespace

Generation::Generation(GenerationHost& host, std::shared_ptr<Exchange> exchange,
                       TextRequest request, Clock::time_point asked, GenerationHeld held)
    : host_(host),
      exchange_(std::move(exchange)),
      asked_(asked),
      tasks_(std::move(request.tasks)),
      streams_(request.streams),
      returns_progress_(request.returns_progress),
      facts_(facts_of(tasks_, request, host, exchange_->request().id)),
      writer_(request.echo.empty() ? completion_writer(facts_)
                                   : response_writer(facts_, std::move(request.echo))),
      choices_(tasks_.size() * tasks_.front().choices),
      held_(std::move(held)) {
  for (const rows::Task& task : tasks_) prompt_tokens_ += task.prompt.size();
}

double Generation::seconds() const {
  return std::chrono::duration<double>(Clock::now() - asked_).count();
}

void Generation::start() {
  for (rows::Task& task : tasks_) task.answer_id = unique_part(exchange_->request().id);
  const std::size_t of_each = choices_.size() / tasks_.size();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const rows::Task& task = tasks_[i / of_each];
    if (streams_ && task.make_reader) choices_[i].reader.emplace(task.make_reader());
    const auto accepted = host_.service.submit(
        rows::task_of_choice(task, static_cast<std::uint32_t>(i % of_each)), events_for(i));
    if (const auto* id = std::get_if<std::uint64_t>(&accepted)) {
      choices_[i].task_id = *id;
      continue;
    }
    cancel();
    if (std::get<serve::Service::Refusal>(accepted) == serve::Service::Refusal::queue_is_full) {
      throw ApiError(429, "too many requests wait: try again later", "queue_full", 1);
    }
    throw ApiError(503, "the server takes no more requests: it is stopping");
  }
  for (rows::Task& task : tasks_) task.prompt = {};  // each text has its own
  exchange_->on_gone([self = shared_from_this()] { self->cancel(); });
  if (!streams_) return;
  exchange_->begin_stream(fields());
  exchange_->send(writer_->begin());
  if (returns_progress_) take_progress({.tokens = prompt_tokens_});
}

// Called by the service on its thread: pass on what is needed, and return.
serve::Events Generation::events_for(std::size_t choice) {
  const auto self = shared_from_this();
  serve::Events events;
  events.on_token = [self, choice](const rows::Task&, const rows::TokenEvent& event) {
    Token token{
        .text = {}, .logprobs = {}, .is_token = event.token.has_value(), .when = Clock::now()};
    if (token.is_token) ++self->tokens_;
    if (self->streams_) {
      token.text = event.text;
      token.logprobs.assign(event.logprobs.begin(), event.logprobs.end());
    }
    self->post([self, choice, token = std::move(token)]() mutable {
      self->take_token(choice, std::move(token));
    });
  };
  events.on_done = [self, choice](const rows::Task&, const rows::Outcome& outcome) {
    self->post([self, choice, outcome = outcome]() mutable {
      self->take_end(choice, std::move(outcome));
    });
  };
  if (returns_progress_ && choice == 0) {  // the others share what it reads
    events.on_prompt = [self](const rows::Task&, const rows::PromptProgress& prompt) {
      self->post([self, prompt] { self->take_progress(prompt); });
    };
  }
  return events;
}

void Generation::take_progress(const rows::PromptProgress& prompt) {
  if (!has_ended_) exchange_->send(writer_->progress(prompt, seconds()));
}

// What goes wrong with an answer ends this answer.
void Generation::post(std::function<void()> work) {
  host_.post([self = shared_from_this(), work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      self->fail(self->host_.failure(self->exchange_->request().id, error.what()));
    }
  });
}

std::string Generation::logprobs_of(std::vector<sampling::TokenLogprob> logprobs,
                                    std::uint64_t& text_offset) const {
  if (logprobs.empty()) return {};
  rows::Completion completion;
  completion.logprobs = std::move(logprobs);
  return rows::logprobs_text(facts_.form, completion, tasks_.front().top_logprobs.value_or(0),
                             host_.service.engine().tokenizer(), text_offset);
}

void Generation::take_token(std::size_t index, Token token) {
  if (has_ended_) return;
  Choice& choice = choices_[index];
  if (token.is_token) {
    const auto since = token.when - choice.last_token.value_or(asked_);
    TimeHistogram& times = choice.last_token ? host_.between_tokens : host_.first_token;
    times.add(std::chrono::duration<double>(since).count());
    choice.last_token = token.when;
    if (!first_token_s_) first_token_s_ = std::chrono::duration<double>(since).count();
  }
  if (!streams_) return;
  Piece piece;
  piece.logprobs = logprobs_of(std::move(token.logprobs), choice.text_offset);
  if (choice.reader) {
    chat::SplitText split = choice.reader->feed(token.text);
    piece.text = std::move(split.answer);
    piece.thought = std::move(split.thought);
  } else {
    piece.text = std::move(token.text);
  }
  if (piece.text.empty() && piece.thought.empty() && piece.logprobs.empty()) return;
  send_piece(index, std::move(piece));
}

void Generation::send_piece(std::size_t index, Piece piece) {
  piece.choice = index;
  piece.is_first = std::exchange(choices_[index].is_first, false);
  exchange_->send(writer_->piece(piece));
}

void Generation::take_end(std::size_t index, rows::Outcome outcome) {
  if (has_ended_) return;
  if (outcome.end != rows::Outcome::End::completed) {
    return fail(ApiError(status_of(outcome), outcome.problem));
  }
  Choice& choice = choices_[index];
  choice.is_done = true;
  choice.completion = std::move(outcome.completion);
  if (streams_) {
    end_choice(index);
    choice.completion.logprobs = {};
  }
  if (std::ranges::all_of(choices_, &Choice::is_done)) end_answer();
}

// Tells the client what it should know of its prompt and of the form that it asked for.
std::vector<Field> Generation::fields() const {
  const std::string& warning = tasks_.front().warning;
  if (warning.empty()) return {};
  return {{"X-Sluice-Warning", warning}};
}

// The last piece of a choice: what was held back, the calls, and why it ended.
void Generation::end_choice(std::size_t index) {
  Choice& choice = choices_[index];
  Piece piece;
  if (choice.reader) {
    chat::SplitText rest = choice.reader->finish(rows::answer_end(choice.completion));
    piece.text = std::move(rest.answer);
    piece.thought = std::move(rest.thought);
    piece.tool_calls = choice.completion.tool_calls;
  }
  piece.finish = rows::finish_name(choice.completion);
  send_piece(index, std::move(piece));
}

void Generation::end_answer() {
  has_ended_ = true;
  note_for_log();
  if (!streams_) return end_whole();
  exchange_->send(writer_->end(take_completions()));
  held_ = {};
  exchange_->end_stream();
}

std::vector<rows::Completion> Generation::take_completions() {
  std::vector<rows::Completion> completions;
  for (Choice& choice : choices_) completions.push_back(std::move(choice.completion));
  return completions;
}

// There may be very many log probabilities, so that writing them would keep other clients waiting.
void Generation::end_whole() {
  const auto respond = [self = shared_from_this()](const std::shared_ptr<Response>& response) {
    self->held_ = {};  // what is left is the connection's to hold
    self->exchange_->respond(std::move(*response));
  };
  if (!tasks_.front().top_logprobs) return respond(std::make_shared<Response>(whole()));
  host_.aside([self = shared_from_this(), respond]() -> Then {
    const auto response = std::make_shared<Response>(self->whole());
    return [respond, response] { respond(response); };
  });
}

Response Generation::whole() {
  try {
    std::vector<rows::Completion> completions = take_completions();
    for (rows::Completion& completion : completions) {
      std::uint64_t text_offset = 0;
      completion.logprobs_text = logprobs_of(std::exchange(completion.logprobs, {}), text_offset);
    }
    return {.body = writer_->whole(completions), .fields = fields()};
  } catch (const std::exception& error) {
    return error_response(host_.failure(exchange_->request().id, error.what()));
  }
}

// When one choice fails, the whole answer does.
void Generation::fail(const ApiError& error) {
  cancel();
  if (!streams_) return exchange_->respond(error_response(error));
  exchange_->send(writer_->failure(error));
  exchange_->end_stream();
}

// Nobody waits for the answer any more. What is held is given back when the service has let go of
// the texts.
void Generation::cancel() {
  if (!std::exchange(has_ended_, true)) note_for_log();
  for (const Choice& choice : choices_) {
    if (choice.task_id != 0 && !choice.is_done) host_.service.cancel(choice.task_id);
  }
}

void Generation::note_for_log() {
  std::string& note = exchange_->request().note;
  note = fmt::format(", {} prompt tokens, {} generated", prompt_tokens_, tokens_.load());
  if (first_token_s_) note += fmt::format(", the first after {:.0f} ms", 1000 * *first_token_s_);
}

}  // namespace sluice::http
