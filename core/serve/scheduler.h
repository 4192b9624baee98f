// Continuous batching: many sequences share each pass over the tape.
//
// Every step takes one token of each sequence that generates, and fills the rest of step_columns()
// with pieces of prompts. Where a grammar leaves a text one way to go on, its next tokens are known
// without logits, so they join the next step of their sequence. A finished sequence is replaced
// before the next step. Rows have an order: interactive ones before those in the background, and
// each kind in the order of the source. A row that does not fit into the cache waits, and so do the
// rows behind it; so no row starves behind others of its kind.
//
// A row begins with room for its prompt and a little more, and its room grows with its text. When
// the cache is full, the sequences that are kept for their prefixes go first; then the last row in
// the order is preempted: it loses its sequence, and when a row has ended it goes on with the same
// sampler and the same tokens, which are evaluated again as far as they are no longer kept. The
// first row is never preempted, and what could not fit into an empty cache is refused; so every row
// ends. An interactive row that finds all places taken preempts one in the background.
//
// Common prefixes are evaluated once. A row whose prompt shares `shared_tokens_min` or more tokens
// with that of a running row waits until these are evaluated, and then begins as a fork of it (or
// from nothing if they have slid out of a window). Sequences that have ended are kept for later
// rows, until their pages are needed. What no sequence has may be in the engine's prompt cache.
//
// The tokens of a row depend on the row alone: the engine's logits do not depend on what else is in
// a step, and each row has its own sampler. So the scheduler is free to choose the order.
//
// What is left of a step may go to drafts: guesses at the next tokens of rows that generate
// (core/speculate), evaluated in the same step. A row takes its tokens from the logits one after
// the other as ever, each with the random number that it would have had, for as long as the drafts
// are the tokens that it takes. So drafts change how many steps a text needs, and nothing else.
//
// A row is the unit of failure. Whatever its task throws (its watch, guide or reader, the sampler,
// the token sink, a lack of memory) makes this row fail; the other rows of the step do not notice.
//
// Threads: used by one thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/engine.h"
#include "core/rows/task.h"
#include "core/sampling/sampler.h"
#include "core/serve/guesser.h"
#include "core/serve/kept_prefixes.h"
#include "core/speculate/share_columns.h"
#include "core/speculate/source.h"
#include "core/speculate/step_times.h"

namespace sluice::serve {

struct DraftOptions {
  using Sources = std::vector<std::unique_ptr<speculate::Source>>;

  // Makes the sources of the drafts of a row, those first that cost nothing. Empty: nothing is
  // drafted. A source that throws is no longer asked.
  std::function<Sources(const rows::Task&)> make_sources = {};
  // Rows have a source of the model's own guesses too (serve/guesser.h), behind those that cost
  // nothing, where the engine has such.
  bool uses_predictor = false;
  std::uint64_t bytes_per_token = 0;  // that sources hold besides those of speculate
  std::uint32_t row_max = 7;          // drafts of a row in a step
  // Drafts all that there is room for, whether or not the measured times of steps speak for it.
  bool is_eager = false;
};

struct SchedulerOptions {
  std::uint32_t parallel = 1;  // most sequences in a step; the engine's limits apply first
  std::uint32_t shared_tokens_min = 32;
  std::size_t kept_max = plan::kept_sequences_max;  // sequences kept for their prefixes
  // Most columns of prompts in a step in which an interactive row generates, so that it need not
  // wait long for its tokens. The same for prompts in the background beside an interactive one.
  // Also the most columns of a step for tokens that were known without logits.
  std::uint32_t prompt_columns_beside = 32;
  DraftOptions drafts = {};
};

struct SchedulerCounts {
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens_evaluated = 0;  // for the first time
  std::uint64_t prompt_tokens_shared = 0;     // pages of another sequence, or of the prompt cache
  std::uint64_t prompt_tokens_restored = 0;   // of these, from the prompt cache
  std::uint64_t tokens_evaluated_again = 0;   // after a preemption
  std::uint64_t tokens_generated = 0;
  std::uint64_t tokens_forced = 0;  // of these, those that were known without logits
  std::uint64_t row_steps = 0;      // how often a row got tokens out of a step
  std::uint64_t tokens_drafted = 0;
  std::uint64_t tokens_accepted = 0;                 // of these, those that were right
  speculate::DraftCountsByKind drafts_by_kind = {};  // of the same
  std::uint64_t running_max = 0;                     // most sequences in one step
  std::uint64_t rows_begun = 0;
  std::uint64_t prefix_hits = 0;  // rows that began with a shared prefix
  std::uint64_t preemptions = 0;

  // What a text gains in a step that generates, on average: a token that is chosen, besides those
  // that were guessed right. The last may be an end.
  double tokens_per_step() const {
    const std::uint64_t gaining = row_steps == 0 ? 1 : row_steps;
    return 1 + static_cast<double>(tokens_accepted) / static_cast<double>(gaining);
  }
};

// The most bytes that a scheduler holds for rows and kept sequences, without their pages, when no
// row has more than `positions` positions and all are of the same priority. With both there may be
// twice as many rows.
std::uint64_t rows_bytes(const SchedulerOptions& options, std::uint64_t positions);

class Scheduler {
 public:
  // Returns a task of this priority or a higher one; nothing when there is none now.
  using Source = std::function<std::optional<rows::Task>(rows::Priority least)>;
  using Sink = std::function<void(const rows::Task&, const rows::Outcome&)>;
  using TokenSink = std::function<void(const rows::Task&, const rows::TokenEvent&)>;
  using PromptSink = std::function<void(const rows::Task&, const rows::PromptProgress&)>;

  // `engine` must outlive the scheduler, and have no other sequences. Each task gets the
  // progress of its prompt, any number of token events, and then one outcome. `tokens` and
  // `prompts` may be empty.
  Scheduler(engine::Engine& engine, const SchedulerOptions& options, Source source, Sink sink,
            TokenSink tokens = {}, PromptSink prompts = {});
  ~Scheduler();

  // Admits the rows that there is room for, and runs one step. Returns false when nothing is left
  // to do. Throws what the engine, the source and the sink throw. When the engine throws, rows are
  // as before the step. When the sink throws, its row has ended, and all others are as after the
  // step. What the sinks of tokens and prompts throw makes their row fail.
  bool step();

  // Takes no more rows from the source, and drops the rows that have not begun to generate.
  void wind_down();

  // Ends a row that was admitted; with the next step it gets the text that was held back, and its
  // outcome. May be called while the
  // engine computes a step, by the thread of step(). Returns false when there is no such row.
  bool cancel(std::uint64_t id, std::string_view reason);

  // Ends all rows that have not ended as failed.
  void end_all(const std::string& problem);

  // After a step() that has thrown because the engine has: ends the rows of that step as failed,
  // such that they may run again. Returns false, and does nothing, when there are none: then it was
  // not the engine's step that has thrown.
  bool end_step(const std::string& problem);

  // Whether a step that is being computed should rather be given up: it serves mostly rows that
  // were cancelled; or it evaluates long prompts in the background while an interactive row waits
  // to begin. False in the step after one that was given up, so that the others get on, unless it
  // serves cancelled rows alone.
  bool should_give_up(bool interactive_waits) const;

  std::size_t running() const { return rows_.size(); }        // rows that were admitted
  std::size_t kept_tokens() const { return kept_.tokens(); }  // of sequences that have ended
  const SchedulerCounts& counts() const { return counts_; }

 private:
  struct Row;

  template <class Work>
  void attempt(Row& row, const Work& work);
  void admit();
  void add(rows::Task&& task);
  void begin(Row& row);
  std::optional<rows::Priority> wanted(const Row* waits) const;
  void grow();
  void make_room(Row& row);
  bool start(Row& row);
  const Row* start_rows();
  bool has_to_wait(const Row& row) const;
  std::unique_ptr<engine::Sequence> make_sequence(const Row& row);
  bool is_long(const Row& row) const;
  std::size_t places_taken() const;
  void read_prompts();
  bool preempt_behind(const Row& row, rows::Priority first);
  void preempt(Row& row);
  void gather();
  std::size_t up_to_saved(const Row& row, std::size_t tokens) const;
  std::size_t prompt_columns(const Row& row, std::size_t used) const;
  void add_drafts();
  void propose(Row& row, std::size_t most, std::size_t columns, std::size_t tokens) const;
  std::size_t most_drafts(Row& row) const;
  std::size_t count_evaluated(Row& row, std::size_t tokens);
  void advance(Row& row, std::size_t tokens, std::span<const float> logits);
  void take_tokens(Row& row, std::span<const float> logits);
  tokenizer::Token take_next(Row& row, std::span<const float> logits);
  std::size_t judge_drafts(Row& row, std::span<const float> logits);
  void take_token(Row& row, tokenizer::Token token, std::span<const float> logits);
  std::vector<float> vector_of(const Row& row) const;
  void forget(Row& row);
  void flush(Row& row);
  void finish(Row& row, rows::Finish reason);
  void fail(Row& row, const std::string& problem, rows::Outcome::End how,
            bool may_run_again = false);
  void end(Row& row, const rows::Outcome& outcome);
  void tell(Row& row, std::string_view text, std::optional<tokenizer::Token> token);
  void end_cancelled();
  void keep(Row& row);
  void remove_ended();

  engine::Engine& engine_;
  SchedulerOptions options_;
  std::uint32_t positions_max_;  // of a row
  Source source_;
  Sink sink_;
  TokenSink tokens_;
  PromptSink prompts_;
  std::exception_ptr sink_failure_;  // the first of this step; thrown at its end
  bool is_winding_down_ = false;
  bool was_given_up_ = false;  // the last step
  bool has_to_end_ = false;    // the present step, because the one before it was given up
  std::vector<std::unique_ptr<Row>> rows_;  // in their order
  KeptPrefixes kept_;
  std::optional<Guesser> guesser_;
  std::vector<engine::SequenceWork> works_;  // of the current step, and their rows
  std::vector<Row*> workers_;
  std::vector<speculate::Share> shares_;
  speculate::StepTimes step_times_;
  std::size_t timed_columns_ = 0;  // of the current step; 0: it has prompts too, and tells nothing
  std::shared_ptr<sampling::SamplerScratch> scratch_ = std::make_shared<sampling::SamplerScratch>();
  SchedulerCounts counts_;
};

}  // namespace sluice::serve
