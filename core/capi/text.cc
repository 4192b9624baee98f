#include "core/capi/text.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "core/capi/boundary.h"
#include "core/error.h"

namespace sluice::capi {

using tokenizer::Token;

Text::Text(std::shared_ptr<Model> model, rows::Task task) : model_(std::move(model)) {
  if (task.make_reader) reader_.emplace(task.make_reader());
  {
    const base::MutexLock lock(inbox_->mutex);
    inbox_->pieces = PieceQueue(model_->memory_for(task));
  }
  serve::Events events;
  events.on_token = [inbox = inbox_](const rows::Task&, const rows::TokenEvent& event) {
    const base::MutexLock lock(inbox->mutex);
    if (!inbox->pieces.push({std::string(event.text), event.token})) {
      throw Busy("the pieces of this text were not taken, and there is no memory for more of them");
    }
    inbox->changed.notify_all();
  };
  events.on_done = [inbox = inbox_](const rows::Task&, const rows::Outcome& outcome) {
    const base::MutexLock lock(inbox->mutex);
    inbox->outcome = outcome;
    inbox->outcome->completion.text = inbox->outcome->completion.thought = {};
    inbox->changed.notify_all();
  };
  id_ = model_->submit(std::move(task), std::move(events));
}

// Nothing: the text has ended.
std::optional<PieceQueue::Piece> Text::wait() {
  base::MutexLock lock(inbox_->mutex);
  while (inbox_->pieces.is_empty() && !inbox_->outcome) inbox_->changed.wait(lock);
  if (inbox_->pieces.is_empty()) return std::nullopt;
  return inbox_->pieces.pop();
}

const sluice_piece* Text::next() {
  const base::MutexLock lock(mutex_);
  if (is_over_) return nullptr;
  if (std::optional<PieceQueue::Piece> arrived = wait()) {
    if (!reader_) return show({.thought = {}, .answer = std::move(arrived->text)}, arrived->token);
    return show(reader_->feed(arrived->text), arrived->token);
  }
  check_outcome();
  if (reader_) {
    chat::SplitText rest = reader_->finish(answer_end());
    reader_.reset();
    if (!rest.answer.empty() || !rest.thought.empty()) return show(std::move(rest), std::nullopt);
  }
  is_over_ = true;
  return nullptr;
}

chat::AnswerEnd Text::answer_end() const {
  const base::MutexLock lock(inbox_->mutex);
  const rows::Outcome& outcome = *inbox_->outcome;
  return outcome.end == rows::Outcome::End::completed ? rows::answer_end(outcome.completion)
                                                      : chat::AnswerEnd::cut;
}

const sluice_piece* Text::show(chat::SplitText split, std::optional<Token> token) {
  shown_ = std::move(split);
  piece_ = {.text = shown_.answer.c_str(),
            .text_bytes = shown_.answer.size(),
            .thought = shown_.thought.c_str(),
            .thought_bytes = shown_.thought.size(),
            .token = token.value_or(-1)};
  return &piece_;
}

void Text::check_outcome() const {
  const base::MutexLock lock(inbox_->mutex);
  const rows::Outcome& outcome = *inbox_->outcome;
  using End = rows::Outcome::End;
  if (outcome.end == End::completed) return;
  if (outcome.cause) std::rethrow_exception(outcome.cause);
  if (outcome.end == End::failed) {  // the weights cannot be read, or the engine has ended
    throw Error(outcome.may_run_again ? ExitCode::io : ExitCode::failure, outcome.problem);
  }
  if (!inbox_->is_stopped) throw UsageError("the model was closed");
}

void Text::stop() {
  {
    const base::MutexLock lock(inbox_->mutex);
    if (inbox_->outcome) return;
    inbox_->is_stopped = true;
  }
  model_->cancel(id_);
}

void Text::result(sluice_result& result) const {
  const base::MutexLock lock(mutex_);
  if (!is_over_) throw UsageError("the text has not ended: take its pieces first");
  const base::MutexLock inbox_lock(inbox_->mutex);
  const rows::Outcome& outcome = *inbox_->outcome;
  const rows::Completion& completion = outcome.completion;
  const bool is_whole = outcome.end == rows::Outcome::End::completed;
  result.finish = !is_whole                                   ? SLUICE_FINISH_STOPPED
                  : completion.finish == rows::Finish::length ? SLUICE_FINISH_LENGTH
                  : completion.has_stop_text                  ? SLUICE_FINISH_STOP_TEXT
                                                              : SLUICE_FINISH_END;
  result.prompt_tokens = completion.prompt_tokens;
  result.shared_tokens = completion.shared_tokens;
  result.text_tokens = completion.completion_tokens;
}

nlohmann::ordered_json Text::tool_calls() const {
  const base::MutexLock lock(mutex_);
  if (!is_over_) throw UsageError("the text has not ended: take its pieces first");
  const base::MutexLock inbox_lock(inbox_->mutex);
  return inbox_->outcome->completion.tool_calls;
}

void read_all(Text& text, const std::function<bool(const sluice_piece&)>& on_piece) {
  bool is_wanted = true;
  while (const sluice_piece* piece = text.next()) {
    if (!is_wanted || on_piece(*piece)) continue;
    is_wanted = false;
    text.stop();
  }
}

void Sequence::append(const std::string& text, bool parse_special) {
  const base::MutexLock lock(mutex_);
  const bool is_first = tokens_.empty();
  tokenizer::EncodePosition position{.is_at_start = is_first, .is_behind_special = is_first};
  model_->tokenizer().encode_piece(text, true, {.add_bos = true, .parse_special = parse_special},
                                   position, tokens_);
}

void Sequence::append(std::span<const Token> tokens) {
  model_->check_tokens(tokens);
  const base::MutexLock lock(mutex_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::truncate(std::size_t count) {
  const base::MutexLock lock(mutex_);
  if (count > tokens_.size()) {
    throw UsageError(
        fmt::format("the sequence has {} tokens, and {} are to stay", tokens_.size(), count));
  }
  tokens_.resize(count);
}

std::vector<Token> Sequence::tokens() const {
  const base::MutexLock lock(mutex_);
  return tokens_;
}

void Sequence::generate(const sluice_request& request,
                        const std::function<bool(const sluice_piece&)>& on_piece,
                        sluice_result* result) {
  const base::MutexLock lock(mutex_);
  rows::Task task = model_->task(request, tokens_);
  tokens_ = task.prompt;  // one of its own where there was none
  Text text(model_, std::move(task));
  std::vector<Token>* const tokens = &tokens_;  // the analysis does not see the lock in a lambda
  read_all(text, [&](const sluice_piece& piece) {
    if (piece.token >= 0) tokens->push_back(piece.token);
    return on_piece(piece);
  });
  if (result != nullptr) text.result(*result);
}

}  // namespace sluice::capi
