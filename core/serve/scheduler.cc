#include "core/serve/scheduler.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <span>
#include <utility>

#include "core/error.h"

namespace sluice::serve {
namespace {

using engine::Sequence;
using engine::SequenceWork;
using tokenizer::Token;

std::size_t common_tokens(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

// A row between its admission and its result. It has no sequence while it waits.
struct Scheduler::Running {
  Running(Task&& given, std::shared_ptr<engine::SamplerScratch> scratch)
      : task(std::move(given)), sampler(task.sampler, std::move(scratch)), text(task.stop) {
    completion.prompt_tokens = task.prompt.size();
    completion.truncated_tokens = task.truncated_tokens;
    if (task.watch) forced_by = task.watch();
    if (task.tokens_min == 0) return;
    banned_at_first = task.stop_tokens;
    banned_at_first.insert(banned_at_first.end(), task.end_tokens->begin(), task.end_tokens->end());
  }

  // The tokens that must not be chosen next.
  std::span<const Token> banned() const {
    if (completion.completion_tokens < task.tokens_min) return banned_at_first;
    if (task.ignores_end) return *task.end_tokens;
    return {};
  }
  bool ends_with(Token token) const {
    return std::ranges::binary_search(*task.end_tokens, token) ||
           std::ranges::find(task.stop_tokens, token) != task.stop_tokens.end();
  }

  std::uint32_t positions() const {
    return static_cast<std::uint32_t>(task.prompt.size()) + task.tokens_max;
  }
  // The part of the prompt that can be shared. The last token is always evaluated, for its logits.
  std::span<const Token> shareable() const {
    return std::span(task.prompt).first(task.prompt.size() - 1);
  }
  bool generates() const { return sequence && sequence->position() >= task.prompt.size(); }

  // The tokens to evaluate next.
  std::span<const Token> pending() const {
    if (generates()) return {&next, 1};
    return std::span(task.prompt).subspan(sequence->position());
  }

  Task task;
  engine::Sampler sampler;
  engine::TextStream text;
  Completion completion;
  std::unique_ptr<Sequence> sequence;
  Token next = 0;  // the newest token, not yet evaluated
  std::vector<Token> banned_at_first;
  Task::Forced forced_by;         // may be empty
  std::deque<Token> forced;       // tokens that come next, in place of the model's choice
  std::string cancelled_because;  // empty: it goes on
  bool is_finished = false;
};

// A finished sequence that is kept for its prompt.
struct Scheduler::Kept {
  std::vector<Token> prompt;
  std::unique_ptr<Sequence> sequence;
};

// For each position: a token, or its text, which is a few bytes on average in a growing string.
std::uint64_t rows_bytes(const SchedulerOptions& options, std::uint64_t positions) {
  constexpr std::uint64_t position_bytes = 24, row_bytes = 2048;
  const std::uint64_t row = positions * position_bytes + header_bytes_max + row_bytes;
  return options.parallel * row + options.kept_max * positions * sizeof(Token);
}

Scheduler::Scheduler(engine::Engine& engine, const SchedulerOptions& options, Source source,
                     Sink sink, TokenSink tokens)
    : engine_(engine),
      options_(options),
      source_(std::move(source)),
      sink_(std::move(sink)),
      tokens_(std::move(tokens)) {
  const std::uint32_t limit = std::min(engine.step_columns(), engine.step_logits());
  options_.parallel = std::clamp<std::uint32_t>(options.parallel, 1, std::max(limit, 1U));
}

Scheduler::~Scheduler() = default;

bool Scheduler::step() {
  end_cancelled();
  admit();
  if (running_.empty()) return false;
  gather();
  if (works_.empty()) return true;  // rows failed to start; there may be more rows
  has_to_end_ = std::exchange(was_given_up_, true);
  const auto logits = engine_.step(works_);
  was_given_up_ = false;
  ++counts_.steps;
  counts_.running_max = std::max<std::uint64_t>(counts_.running_max, works_.size());
  for (std::size_t i = 0; i < works_.size(); ++i) {
    advance(*workers_[i], works_[i].tokens.size(), logits[i]);
  }
  remove_finished();
  return true;
}

void Scheduler::wind_down() {
  is_winding_down_ = true;
  std::erase_if(running_, [](const auto& row) { return !row->generates(); });
}

void Scheduler::remove_finished() {
  std::erase_if(running_, [](const auto& row) { return row->is_finished; });
}

// A row that waits for a common prefix lets others pass. A row that waits for room does not: many
// small rows could keep it waiting for ever.
void Scheduler::admit() {
  bool has_room = true;
  for (const auto& row : running_) has_room = has_room && start(*row);
  while (has_room && !is_winding_down_ && running_.size() < options_.parallel) {
    std::optional<Task> task = source_(Priority::background);
    if (!task) break;
    Running& row = *running_.emplace_back(std::make_unique<Running>(std::move(*task), scratch_));
    if (row.task.tokens_max == 0) {
      finish(row, Finish::length);
    } else {
      has_room = start(row);
    }
    remove_finished();
  }
  remove_finished();
}

// Gives the row a sequence, unless it should wait to share a prefix. Returns false when the cache
// has no room for it.
bool Scheduler::start(Running& row) {
  if (row.sequence || has_to_wait(row)) return true;
  row.sequence = make_sequence(row);
  while (!row.sequence && !kept_.empty()) {
    kept_.pop_front();
    row.sequence = make_sequence(row);
  }
  if (row.sequence) {
    counts_.prompt_tokens_shared += row.sequence->position();
    return true;
  }
  const bool is_alone =
      std::ranges::none_of(running_, [](const auto& other) { return other->sequence != nullptr; });
  if (!is_alone) return false;
  fail(row,
       fmt::format("the row needs {} positions, but the cache holds {}: raise --budget",
                   row.positions(), engine_.free_positions()),
       Outcome::End::failed);
  return true;
}

// Whether another row is still evaluating a prefix that this one could share.
bool Scheduler::has_to_wait(const Running& row) const {
  return std::ranges::any_of(running_, [&](const auto& other) {
    if (other.get() == &row || !other->sequence || other->generates()) return false;
    const std::size_t shared = common_tokens(row.shareable(), other->shareable());
    return shared >= options_.shared_tokens_min && shared > other->sequence->position();
  });
}

std::unique_ptr<Sequence> Scheduler::make_sequence(const Running& row) {
  const Sequence* best = nullptr;
  std::size_t best_shared = 0;
  const auto consider = [&](const Sequence* sequence, std::span<const Token> prompt) {
    if (sequence == nullptr) return;
    const std::size_t shared =
        std::min<std::size_t>(common_tokens(row.shareable(), prompt), sequence->position());
    if (shared >= options_.shared_tokens_min && shared > best_shared) {
      best = sequence;
      best_shared = shared;
    }
  };
  for (const auto& other : running_) consider(other->sequence.get(), other->task.prompt);
  for (const Kept& kept : kept_) consider(kept.sequence.get(), kept.prompt);
  auto forked = best == nullptr ? nullptr : fork_of(*best, best_shared, row.positions());
  return forked ? std::move(forked) : engine_.new_sequence(row.positions());
}

// Null when there is no room, or when `source` no longer has the shared prefix.
std::unique_ptr<Sequence> Scheduler::fork_of(const Sequence& source, std::size_t shared,
                                             std::uint32_t positions) {
  try {
    return engine_.fork(source, static_cast<std::uint32_t>(shared), positions);
  } catch (const UsageError&) {
    return nullptr;
  }
}

// Sequences that generate go first. Prompts share the remaining columns, oldest first.
void Scheduler::gather() {
  works_.clear();
  workers_.clear();
  std::size_t columns = engine_.step_columns();
  const auto add = [&](Running& row, std::size_t tokens, bool wants_logits) {
    works_.push_back({row.sequence.get(), row.pending().first(tokens), wants_logits});
    workers_.push_back(&row);
    columns -= tokens;
  };
  for (const auto& row : running_) {
    if (row->generates()) add(*row, 1, true);
  }
  for (const auto& row : running_) {
    if (!row->sequence || row->generates() || columns == 0) continue;
    const std::size_t left = row->pending().size();
    add(*row, std::min(left, columns), left <= columns);
  }
}

void Scheduler::advance(Running& row, std::size_t tokens, std::span<const float> logits) {
  if (row.completion.completion_tokens == 0) counts_.prompt_tokens_evaluated += tokens;
  if (logits.empty()) return;
  if (row.completion.completion_tokens == 0) {
    for (const Token token : row.task.prompt) row.sampler.accept_prompt(token);
  }
  try {
    take_token(row, logits);
  } catch (const ModelError& error) {  // no usable logits
    fail(row, error.what(), Outcome::End::failed);
  }
}

Token Scheduler::choose_token(Running& row, std::span<const float> logits) {
  if (row.forced.empty()) return row.sampler.sample(logits, row.banned());
  const Token token = row.forced.front();
  row.forced.pop_front();
  return token;
}

void Scheduler::take_token(Running& row, std::span<const float> logits) {
  const bool is_forced = !row.forced.empty();
  const Token token = choose_token(row, logits);
  if (!is_forced && row.ends_with(token)) return finish(row, Finish::stop);
  if (row.task.top_logprobs) {
    engine::append_logprobs(logits, token, *row.task.top_logprobs, row.completion.logprobs);
  }
  ++counts_.tokens_generated;
  ++row.completion.completion_tokens;
  row.sampler.accept(token);
  row.next = token;
  const std::string_view text =
      row.text.push(row.task.piece ? row.task.piece(token) : engine_.tokenizer().piece(token));
  row.completion.text += text;
  if (row.forced_by && row.forced.empty()) {
    std::ranges::copy(row.forced_by(text), std::back_inserter(row.forced));
  }
  tell(row, text, token);
  if (row.text.stopped()) return finish(row, Finish::stop);
  if (row.completion.completion_tokens == row.task.tokens_max) finish(row, Finish::length);
}

void Scheduler::tell(const Running& row, std::string_view text, std::optional<Token> token) {
  if (!tokens_) return;
  TokenEvent event{text, token, {}};
  if (token && row.task.top_logprobs) {
    event.logprobs = std::span(row.completion.logprobs).last(1 + *row.task.top_logprobs);
  }
  tokens_(row.task, event);
}

void Scheduler::finish(Running& row, Finish reason) {
  const std::string_view rest = row.text.finish();
  row.completion.text += rest;
  row.completion.finish = reason;
  if (!rest.empty()) tell(row, rest, std::nullopt);
  split_text(row.task, row.completion);
  row.is_finished = true;
  sink_(row.task, {std::move(row.completion), "", Outcome::End::completed});
  keep(row);
}

void Scheduler::fail(Running& row, const std::string& problem, Outcome::End end) {
  row.is_finished = true;
  row.sequence.reset();
  sink_(row.task, {std::move(row.completion), problem, end});
}

bool Scheduler::cancel(std::uint64_t id, std::string_view reason) {
  const auto row = std::ranges::find(running_, id, [](const auto& r) { return r->task.id; });
  if (row == running_.end()) return false;
  (*row)->cancelled_because = reason;
  return true;
}

void Scheduler::end_cancelled() {
  for (const auto& row : running_) {
    if (!row->cancelled_because.empty())
      fail(*row, row->cancelled_because, Outcome::End::cancelled);
  }
  remove_finished();
}

void Scheduler::end_all(const std::string& problem) {
  for (const auto& row : running_) fail(*row, problem, Outcome::End::failed);
  remove_finished();
}

bool Scheduler::should_give_up() const {
  std::size_t wanted = 0, unwanted = 0;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    (workers_[i]->cancelled_because.empty() ? wanted : unwanted) += works_[i].tokens.size();
  }
  return has_to_end_ ? wanted == 0 : unwanted > wanted;
}

// Keeps the sequence cut back to its prompt; only that is useful to other rows.
void Scheduler::keep(Running& row) {
  std::unique_ptr<Sequence> sequence = std::move(row.sequence);
  const std::size_t shareable = row.task.prompt.size();
  if (!sequence || shareable < options_.shared_tokens_min) return;
  try {
    sequence->truncate(static_cast<std::uint32_t>(shareable));
  } catch (const UsageError&) {  // the prompt has slid out of the window
    return;
  }
  kept_.push_back({std::move(row.task.prompt), std::move(sequence)});
  if (kept_.size() > options_.kept_max) kept_.pop_front();
}

}  // namespace sluice::serve
