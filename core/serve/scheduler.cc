#include "core/serve/scheduler.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <new>
#include <utility>

#include "core/rows/row_problem.h"
#include "core/serve/scheduler_row.h"
#include "core/speculate/shared_texts.h"
#include "core/speculate/suffix_source.h"

namespace sluice::serve {
namespace {

using engine::Sequence;
using engine::SequenceWork;
using tokenizer::Token;

// How many tokens that are known without logits a row takes at once: what takes no time would fill
// the cache and the client's connection with tokens that are evaluated many steps later.
constexpr std::size_t known_max = 256;

// What a further column of a step is likely to take, as a part of a step without drafts, until that
// is measured. It waits for no disk and reads no weights again, but for those of its own experts.
double guessed_slope(const engine::DecodeWork& work, std::uint32_t parallel) {
  constexpr double in_memory = 0.2, behind_disk = 0.02;
  const bool is_streamed = work.streamed_bytes != 0;
  const auto share = [&](std::uint64_t experts, std::uint64_t all) {
    const std::uint64_t rows = std::max(parallel, 1U);
    return static_cast<double>(experts) /
           static_cast<double>(std::max<std::uint64_t>(all, 1) * rows);
  };
  return is_streamed ? behind_disk + share(work.streamed_expert_bytes, work.streamed_bytes)
                     : in_memory + share(work.hot_expert_bytes, work.hot_bytes);
}

}  // namespace

// For each position a row holds a token, and either the same token in its prompt or the text of it,
// a few bytes on average. Vectors and strings hold up to twice their size while they grow.
std::uint64_t rows_bytes(const SchedulerOptions& options, std::uint64_t positions) {
  constexpr std::uint64_t position_bytes = 32, row_bytes = 2048;
  std::uint64_t row = positions * position_bytes + rows::header_bytes_max + row_bytes;
  if (options.drafts.make_sources) row += speculate::SuffixSource::bytes_of(positions);
  row += positions * options.drafts.bytes_per_token;
  const std::uint64_t shared = options.drafts.make_sources ? speculate::SharedTexts::bytes_max : 0;
  return options.parallel * row + options.kept_max * positions * sizeof(Token) + shared;
}

Scheduler::Scheduler(engine::Engine& engine, const SchedulerOptions& options, Source source,
                     Sink sink, TokenSink tokens, PromptSink prompts)
    : engine_(engine),
      options_(options),
      positions_max_(engine.free_positions()),
      source_(std::move(source)),
      sink_(std::move(sink)),
      tokens_(std::move(tokens)),
      prompts_(std::move(prompts)),
      kept_(options.kept_max),
      step_times_(guessed_slope(engine.facts().work, options.parallel)) {
  const std::uint32_t limit = std::min(engine.step_columns(), engine.step_logits());
  options_.parallel = std::clamp<std::uint32_t>(options.parallel, 1, std::max(limit, 1U));
  const engine::EngineFacts& facts = engine.facts();
  const bool predicts = facts.predicts && facts.takes_drafts;
  if (options.drafts.uses_predictor && predicts) guesser_.emplace(engine);
  // A task that was taken from the source always finds its place.
  const std::size_t rows_max = std::size_t{2} * options_.parallel;
  rows_.reserve(rows_max);
  works_.reserve(rows_max);
  workers_.reserve(rows_max);
}

Scheduler::~Scheduler() = default;

// Does some work for a row. Whatever it throws is the problem of this row alone.
template <class Work>
void Scheduler::attempt(Row& row, const Work& work) {
  if (row.has_ended) return;
  try {
    work();
  } catch (const std::exception& error) {
    if (row.has_ended) return;
    row.problem = std::current_exception();
    fail(row, rows::problem_of(error), rows::Outcome::End::failed);
  }
}

bool Scheduler::step() {
  works_.clear();
  workers_.clear();
  end_cancelled();
  read_prompts();
  grow();
  admit();
  if (rows_.empty()) return false;
  gather();
  if (works_.empty()) return true;  // rows failed to start, or wait for more of their prompts
  add_drafts();
  has_to_end_ = std::exchange(was_given_up_, true);
  const auto begin = std::chrono::steady_clock::now();
  const auto logits = engine_.step(works_);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  step_times_.measured(timed_columns_, taken.count());
  was_given_up_ = false;
  ++counts_.steps;
  counts_.running_max = std::max<std::uint64_t>(counts_.running_max, works_.size());
  for (std::size_t i = 0; i < works_.size(); ++i) {
    Row& row = *workers_[i];
    attempt(row, [&] { advance(row, works_[i].tokens.size(), logits[i]); });
  }
  works_.clear();
  workers_.clear();  // what is thrown from here on has nothing to do with them
  remove_ended();
  return true;
}

void Scheduler::wind_down() {
  is_winding_down_ = true;
  std::erase_if(rows_, [](const auto& row) { return !row->has_begun(); });
}

// Those that were preempted may go on now, since there is more room.
void Scheduler::remove_ended() {
  if (std::erase_if(rows_, [](const auto& row) { return row->has_ended; }) == 0) return;
  for (const auto& row : rows_) row->is_held = false;
  if (sink_failure_) std::rethrow_exception(std::exchange(sink_failure_, nullptr));
}

bool Scheduler::cancel(std::uint64_t id, std::string_view reason) {
  const auto row = std::ranges::find(rows_, id, [](const auto& r) { return r->task.id; });
  if (row == rows_.end()) return false;
  (*row)->cancelled_because = reason;
  return true;
}

void Scheduler::end_cancelled() {
  for (const auto& row : rows_) {
    if (row->cancelled_because.empty()) continue;
    attempt(*row, [&] { flush(*row); });
    if (row->has_ended) continue;
    keep(*row);
    fail(*row, row->cancelled_because, rows::Outcome::End::cancelled);
  }
  remove_ended();
}

void Scheduler::end_all(const std::string& problem) {
  for (const auto& row : rows_) {
    if (!row->has_ended) fail(*row, problem, rows::Outcome::End::failed);
  }
  remove_ended();
}

bool Scheduler::end_step(const std::string& problem) {
  if (workers_.empty()) return false;
  for (Row* row : workers_) {
    if (!row->has_ended) fail(*row, problem, rows::Outcome::End::failed, true);
  }
  works_.clear();
  workers_.clear();
  was_given_up_ = false;
  remove_ended();
  return true;
}

bool Scheduler::should_give_up(bool interactive_waits) const {
  std::size_t wanted = 0, unwanted = 0;
  bool has_interactive = false;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    const bool is_wanted = workers_[i]->cancelled_because.empty();
    (is_wanted ? wanted : unwanted) += works_[i].tokens.size();
    has_interactive |= workers_[i]->is_interactive();
  }
  if (has_to_end_) return wanted == 0;
  const bool delays = wanted > works_.size() + options_.prompt_columns_beside;
  return unwanted > wanted || (interactive_waits && !has_interactive && delays);
}

// Starts the rows that there is room for, those that were admitted before first.
void Scheduler::admit() {
  const Row* waits = start_rows();
  while (const std::optional<rows::Priority> least = wanted(waits)) {
    std::optional<rows::Task> task = source_(*least);
    if (!task) break;
    add(std::move(*task));
    waits = start_rows();
  }
}

// The lowest priority of a task for which there is a place, when row `waits` waits for room (null:
// none).
std::optional<rows::Priority> Scheduler::wanted(const Row* waits) const {
  if (is_winding_down_) return std::nullopt;
  if (waits == nullptr && rows_.size() < options_.parallel) return rows::Priority::background;
  const auto interactive =
      std::ranges::count_if(rows_, [](const auto& row) { return row->is_interactive(); });
  const bool is_full = static_cast<std::size_t>(interactive) >= options_.parallel;
  if (is_full || (waits != nullptr && waits->is_interactive())) return std::nullopt;
  return rows::Priority::interactive;
}

void Scheduler::add(rows::Task&& task) {
  std::unique_ptr<Row> made;
  try {
    made = std::make_unique<Row>(std::move(task));
    made->reads_whole = engine_.facts().is_encoder;
  } catch (const std::bad_alloc& error) {  // the task was not moved yet
    return sink_(task, {{}, rows::problem_of(error), rows::Outcome::End::failed});
  }
  const auto place =
      made->is_interactive()
          ? std::ranges::find_if(rows_, [](const auto& row) { return !row->is_interactive(); })
          : rows_.end();
  Row& row = **rows_.insert(place, std::move(made));
  attempt(row, [&] { begin(row); });
  remove_ended();
}

void Scheduler::begin(Row& row) {
  row.begin(scratch_);
  if (row.reads_whole && !row.task.pooling) {
    fail(row, engine::no_text_of(engine_.facts().architecture), rows::Outcome::End::failed);
  } else if (row.task.tokens_max == 0 && !row.task.pooling) {
    finish(row, rows::Finish::length);
  } else if (row.positions() > positions_max_) {
    fail(row,
         fmt::format("{} positions are needed, but the cache holds {}: raise --budget",
                     row.positions(), positions_max_),
         rows::Outcome::End::failed);
  } else if (options_.drafts.make_sources && engine_.facts().takes_drafts && !row.task.pooling) {
    DraftOptions::Sources sources = options_.drafts.make_sources(row.task);
    if (guesser_) {
      const auto paid = std::ranges::find_if(
          sources, [](const auto& source) { return source && source->seconds_each() > 0; });
      sources.insert(paid, make_guessing_source(*guesser_, row.sequence));
    }
    for (auto& source : sources) {
      if (source) row.sources.push_back({std::move(source)});
    }
  }
}

// Returns the first row that waits for room; null when none does.
const Scheduler::Row* Scheduler::start_rows() {
  const auto waits = std::ranges::find_if(rows_, [this](const auto& row) {
    bool has_place = true;
    attempt(*row, [&] { has_place = start(*row); });
    return !has_place;
  });
  const Row* row = waits == rows_.end() ? nullptr : waits->get();
  remove_ended();
  return row;
}

// Gives the row a sequence, unless it waits for something. Returns false when it waits for room, so
// that rows behind it must wait too: many small rows could keep it waiting for ever. A row that
// waits for a common prefix lets others pass.
bool Scheduler::start(Row& row) {
  if (row.sequence || has_to_wait(row)) return true;
  if (row.is_held && places_taken() != 0) return false;
  const auto makes_room = [&] {
    return row.is_interactive() && preempt_behind(row, rows::Priority::background);
  };
  while (places_taken() == options_.parallel) {
    if (!makes_room()) return false;
  }
  while (!(row.sequence = make_sequence(row))) {
    if (kept_.drop_oldest() || makes_room()) continue;
    if (places_taken() != 0) return false;
    fail(row, fmt::format("there is no room for {} positions: raise --budget", row.positions()),
         rows::Outcome::End::failed);
    return true;
  }
  row.is_held = false;
  row.pool.clear();
  row.use_sources([&](speculate::Source& source) {
    source.forget();
    source.accepted(row.tokens.whole());
  });
  if (std::exchange(row.was_started, true)) return true;
  row.completion.shared_tokens = row.sequence->position();
  row.evaluated_most = row.sequence->position();
  ++counts_.rows_begun;
  counts_.prompt_tokens_shared += row.sequence->position();
  counts_.prefix_hits += row.sequence->position() == 0 ? 0 : 1;
  return true;
}

std::size_t Scheduler::places_taken() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(rows_, [](const auto& row) { return row->sequence != nullptr; }));
}

// Whether another row is still evaluating a prefix that this one could share.
bool Scheduler::has_to_wait(const Row& row) const {
  if (!row.can_share()) return false;
  return std::ranges::any_of(rows_, [&](const auto& other) {
    if (other.get() == &row || !other->sequence || other->generates()) return false;
    if (row.is_interactive() && !other->is_interactive()) return false;
    if (other->sequence->is_long() != is_long(row)) return false;
    const std::size_t shared = common_tokens(row.shareable(), other->shareable());
    return shared >= options_.shared_tokens_min && shared > other->sequence->position();
  });
}

// Null when there is no room.
std::unique_ptr<Sequence> Scheduler::make_sequence(const Row& row) {
  PrefixMatch match{nullptr, std::max(options_.shared_tokens_min, 1U) - 1, is_long(row)};
  if (row.can_share()) {
    for (const auto& other : rows_) {
      if (!other->sequence) continue;
      match.consider(*other->sequence, other->tokens.whole(), row.shareable());
    }
    kept_.find(row.shareable(), match);
  }
  if (match.sequence != nullptr) {
    std::unique_ptr<Sequence> forked = engine_.fork(*match.sequence, match.tokens, row.room(true));
    return forked ? std::move(forked) : kept_.take_only(match, row.room(true));
  }
  std::unique_ptr<Sequence> made = engine_.new_sequence(row.room(true));
  if (!made) return nullptr;
  made->expect(static_cast<std::uint32_t>(row.tokens.size()));
  const std::uint32_t restored = row.can_share() ? engine_.restore(*made, row.shareable()) : 0;
  if (!row.was_started) counts_.prompt_tokens_restored += restored;
  return made;
}

bool Scheduler::is_long(const Row& row) const {
  return row.tokens.size() > engine_.facts().short_tokens_max;
}

// Makes sure that each row has room for its tokens, the first rows first. A row that has become a
// long text begins again, since it needs other keys, and none that it shares with short ones.
void Scheduler::grow() {
  for (const auto& row : rows_) attempt(*row, [&] { make_room(*row); });
  remove_ended();
}

void Scheduler::make_room(Row& row) {
  if (row.sequence && row.sequence->is_long() != is_long(row)) keep(row);
  const auto has_room = [&] { return row.sequence->capacity() >= row.tokens.size(); };
  while (row.sequence && !has_room()) {
    if (row.sequence->reserve(row.room(true)) || kept_.drop_oldest()) continue;
    if (row.sequence->reserve(row.room(false))) continue;
    if (preempt_behind(row, rows::Priority::interactive)) continue;
    if (places_taken() > 1) {
      preempt(row);
    } else {
      fail(row, "the cache has no room for another token: raise --budget",
           rows::Outcome::End::failed);
    }
  }
}

void Scheduler::read_prompts() {
  for (const auto& row : rows_) {
    if (row->sequence) attempt(*row, [&] { row->read_prompt(engine_.step_columns()); });
  }
  remove_ended();
}

// Preempts the last row behind this one that has a sequence and all its tokens, of priority `first`
// or a lower one. Returns false when there is none.
bool Scheduler::preempt_behind(const Row& row, rows::Priority first) {
  for (auto last = rows_.rbegin(); last != rows_.rend() && last->get() != &row; ++last) {
    if ((*last)->task.priority < first) return false;
    if (!(*last)->sequence || (*last)->tokens.whole().empty()) continue;
    preempt(**last);
    return true;
  }
  return false;
}

void Scheduler::preempt(Row& row) {
  ++counts_.preemptions;
  row.is_held = true;
  keep(row);
}

// Sequences that generate go first, each with one token at least. Prompts share the remaining
// columns, in their order.
void Scheduler::gather() {
  std::size_t columns = engine_.step_columns(), known_columns = options_.prompt_columns_beside;
  const auto add = [&](Row& row, std::size_t tokens) {
    const std::span<const Token> pending = row.pending();
    SequenceWork& work = works_.emplace_back();
    work.sequence = row.sequence.get();
    work.tokens = pending.first(tokens);
    work.wants_logits = tokens == pending.size() && !row.task.pooling;
    if (row.task.pooling) {
      work.on_hidden = [&row](std::size_t, std::span<const float> hidden) { row.add(hidden); };
    }
    workers_.push_back(&row);
    columns -= tokens;
  };
  auto generating = static_cast<std::size_t>(
      std::ranges::count_if(rows_, [](const auto& row) { return row->generates(); }));
  std::size_t prompt_columns_used = 0;
  for (const auto& row : rows_) {
    if (!row->generates()) continue;
    const std::size_t more =
        std::min({row->pending().size() - 1, columns - generating, known_columns});
    add(*row, 1 + more);
    known_columns -= more;
    // Known tokens of a row in the background take nothing from a prompt that somebody waits for.
    if (row->is_interactive()) prompt_columns_used += more;
    --generating;
  }
  // Some of each step is left for prompts.
  const std::size_t most = std::max(options_.prompt_columns_beside, 1U);
  prompt_columns_used = std::min(prompt_columns_used, most - std::max<std::size_t>(most / 2, 1));
  for (const auto& row : rows_) {
    if (!row->sequence || row->generates()) continue;
    // The last token may have more of the prompt behind it, and then wants no logits.
    const std::size_t known = row->pending().size() - (row->task.more_prompt ? 1 : 0);
    const std::size_t most_tokens = std::min(columns, prompt_columns(*row, prompt_columns_used));
    const std::size_t whole = known <= columns ? known : 0;
    const std::size_t tokens = row->reads_whole ? whole : std::min(known, most_tokens);
    if (tokens == 0) continue;
    add(*row, up_to_saved(*row, tokens));
    prompt_columns_used += tokens;
  }
}

// No more of a prompt's next `tokens` tokens than bring it to where it can be saved.
std::size_t Scheduler::up_to_saved(const Row& row, std::size_t tokens) const {
  if (row.has_begun() || !row.can_share()) return tokens;
  const std::size_t saved = engine_.saved_until(row.task.prompt.size());
  const std::size_t begin = row.sequence->position();
  return begin < saved ? std::min(tokens, saved - begin) : tokens;
}

// The most columns for the prompt of a row, when those before it use `used`.
std::size_t Scheduler::prompt_columns(const Row& row, std::size_t used) const {
  const bool is_beside = std::ranges::any_of(workers_, [&](const Row* other) {
    return other->is_interactive() && (other->generates() || !row.is_interactive());
  });
  if (!is_beside) return engine_.step_columns();
  const std::size_t most = std::max(options_.prompt_columns_beside, 1U);
  return most - std::min(most, used);
}

// Counts the tokens by which the sequence of a row has grown. Returns how many of them were
// evaluated for the first time.
std::size_t Scheduler::count_evaluated(Row& row, std::size_t tokens) {
  const std::size_t end = row.sequence->position();
  const std::size_t fresh = end - std::clamp(row.evaluated_most, end - tokens, end);
  row.evaluated_most = std::max(row.evaluated_most, end);
  counts_.tokens_evaluated_again += tokens - fresh;
  return fresh;
}

void Scheduler::advance(Row& row, std::size_t tokens, std::span<const float> logits) {
  if (row.problem) std::rethrow_exception(row.problem);
  if (row.drafts != 0) return take_tokens(row, logits);
  const std::size_t fresh = count_evaluated(row, tokens), end = row.sequence->position();
  if (!row.has_begun()) {
    counts_.prompt_tokens_evaluated += fresh;
    if (prompts_) {
      prompts_(row.task,
               {row.completion.prompt_tokens, row.completion.shared_tokens, row.evaluated_most});
    }
  }
  if (!row.has_begun() && end <= row.task.prompt.size() && !row.task.pooling) {
    // The next turn of a conversation often has another end of this prompt: a template opens a
    // thought there, and drops it later. It can begin here, and no step is cut for that.
    constexpr std::size_t changing_end = 32;
    if (end + changing_end <= row.task.prompt.size()) row.sequence->checkpoint();
    engine_.save(*row.sequence, row.tokens.whole().first(end));
  }
  if (row.task.is_endless) forget(row);
  if (row.task.pooling && end == row.tokens.size()) {
    row.completion.embedding = vector_of(row);
    return finish(row, rows::Finish::stop);
  }
  if (logits.empty()) return;
  take_tokens(row, logits);
}

// The embedding of the row's text, or its scores.
std::vector<float> Scheduler::vector_of(const Row& row) const {
  if (!engine_.facts().has_text_head) return row.pool.embedding();
  std::vector<float> made = engine_.text_vector(row.pool.pooled());
  if (engine_.facts().makes_scores) return made;
  return rows::unit_vector(std::vector<double>(made.begin(), made.end()));
}

// Forgets the tokens that are evaluated, where they will not be needed again: a text that becomes
// a long one begins again, and the prompt cache takes those that the task begins with.
void Scheduler::forget(Row& row) {
  const bool begins_again =
      engine_.facts().short_tokens_max != kvcache::unlimited && !row.sequence->is_long();
  const bool is_limited = row.sequence->capacity() != kvcache::unlimited;
  const std::uint32_t end = row.sequence->position();
  if (begins_again || is_limited || end < row.task.prompt.size()) return;
  row.tokens.forget(end);
}

// Takes the tokens that follow from logits, and those behind them that follow from none. Where log
// probabilities are wanted, each token has to wait for its own.
void Scheduler::take_tokens(Row& row, std::span<const float> logits) {
  const std::size_t before = row.tokens.size();
  const std::size_t right = judge_drafts(row, logits);
  row.known = 0;
  while (!row.over && !row.task.top_logprobs && row.known < known_max) {
    const std::optional<Token> next = row.known_token();
    if (!next) break;
    take_token(row, *next, {});
    ++row.known;
  }
  if (row.drafts != 0) {
    row.sequence->accept(right);
    count_evaluated(row, row.step_tokens.size() - row.drafts + right);
  }
  row.tell_sources(row.tokens.from(before));
  if (row.over) return finish(row, *row.over);
  if (row.drafts != 0 && row.task.is_endless) forget(row);
}

// Chooses the next token, by these logits unless it is known without them.
Token Scheduler::take_next(Row& row, std::span<const float> logits) {
  std::optional<Token> next = row.known_token();
  if (!next) {
    next = row.guide ? row.sampler->sample(logits, row.banned(), row.guide->allowed())
                     : row.sampler->sample(logits, row.banned());
  }
  take_token(row, *next, logits);
  return *next;
}

void Scheduler::take_token(Row& row, Token token, std::span<const float> logits) {
  const bool is_forced = !row.forced.empty();
  if (is_forced) row.forced.erase(row.forced.begin());
  if (!is_forced && row.ends_with(token)) {
    row.over = rows::Finish::stop;
    return;
  }
  if (row.task.top_logprobs) {
    sampling::append_logprobs(logits, token, *row.task.top_logprobs, row.completion.logprobs);
  }
  ++counts_.tokens_generated;
  if (logits.empty()) ++counts_.tokens_forced;
  ++row.completion.completion_tokens;
  row.sampler->accept(token);
  row.tokens.add(token);
  const std::string_view piece =
      row.task.piece ? row.task.piece(token) : engine_.tokenizer().piece(token);
  if (row.guide) row.guide->take(token, piece);
  const std::string_view text = row.text->push(piece);
  if (row.forced_by && row.forced.empty()) {
    std::ranges::copy(row.forced_by(text), std::back_inserter(row.forced));
  }
  tell(row, text, token);
  if (row.text->stopped() || (row.guide && row.guide->is_complete())) {
    row.over = rows::Finish::stop;
  } else if (row.completion.completion_tokens == row.task.tokens_max) {
    row.over = rows::Finish::length;
  }
}

void Scheduler::tell(Row& row, std::string_view text, std::optional<Token> token) {
  if (!row.task.is_endless) row.completion.text += text;
  if (!tokens_) return;
  rows::TokenEvent event{text, token, {}};
  if (token && row.task.top_logprobs) {
    event.logprobs = std::span(row.completion.logprobs).last(1 + *row.task.top_logprobs);
  }
  tokens_(row.task, event);
}

// Gives the text that was held back.
void Scheduler::flush(Row& row) {
  const std::string_view rest = row.text->finish();
  if (!rest.empty()) tell(row, rest, std::nullopt);
}

void Scheduler::finish(Row& row, rows::Finish reason) {
  flush(row);
  row.use_sources(
      [&](speculate::Source& source) { source.ended(row.completion.completion_tokens); });
  row.completion.finish = reason;
  row.completion.has_stop_text = row.text->stopped();
  rows::split_text(row.task, row.completion);
  keep(row);
  end(row, {std::move(row.completion), "", rows::Outcome::End::completed});
}

void Scheduler::fail(Row& row, const std::string& problem, rows::Outcome::End how,
                     bool may_run_again) {
  row.sequence.reset();
  end(row, {std::move(row.completion), problem, how, may_run_again, row.problem});
}

// A sink that throws must not keep the other rows of the step from their tokens.
void Scheduler::end(Row& row, const rows::Outcome& outcome) {
  row.has_ended = true;
  try {
    sink_(row.task, outcome);
  } catch (...) {
    if (!sink_failure_) sink_failure_ = std::current_exception();
  }
}

// Keeps the sequence of a row for others, or for when the row goes on. It can be evaluated again,
// so it is let go of where there is no memory for that.
void Scheduler::keep(Row& row) {
  std::unique_ptr<Sequence> sequence = std::move(row.sequence);
  if (!sequence || sequence->position() < options_.shared_tokens_min) return;
  const std::span<const Token> whole = row.tokens.whole();
  if (whole.empty()) return;
  const std::span<const Token> held = whole.first(sequence->position());
  try {
    kept_.add({held.begin(), held.end()}, std::move(sequence));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace sluice::serve
