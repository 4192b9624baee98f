// Continuous batching: many sequences through one turn of the tape.
//
// Every step takes one token of each sequence that generates, and fills what is left of
// step_columns() with pieces of prompts. A sequence that is finished is replaced before the next
// step. A row waits while the cache has no room for it; prompts are admitted in the order of the
// source.
//
// Prompts that begin alike: the common beginning is evaluated once. A row whose prompt shares
// `shared_tokens_min` or more tokens with that of a running row waits until they are evaluated and
// then begins as a fork of it, or from nothing where the beginning has slid out of a window. A few
// finished sequences are kept for rows to come, as long as nobody needs their pages.
//
// The tokens of a row depend on the row alone: the engine's logits do not depend on what else is in
// a step, and each row has its own sampler. So the scheduler may do what it likes with the order.
//
// Threads: used by one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/batch/result.h"
#include "core/engine/engine.h"
#include "core/engine/sampler.h"
#include "core/engine/text_stream.h"

namespace sluice::batch {

// A row that is ready to run: at least one prompt token, all in the vocabulary, and
// prompt.size() + tokens_max positions at most as many as a sequence can have.
struct Task {
  std::uint64_t row = 0;
  RowHeader header;
  std::uint32_t choice = 0;   // of the results that the row wants, from 0
  std::uint32_t choices = 1;  // how many these are
  std::vector<tokenizer::Token> prompt;
  std::uint64_t truncated_tokens = 0;
  std::uint32_t tokens_max = 0;
  std::uint32_t tokens_min = 0;  // before that, no token that ends the text is chosen
  engine::SamplerOptions sampler;
  std::vector<std::string> stop;
  std::vector<tokenizer::Token> stop_tokens;
  // The tokens that end the text, in ascending order.
  std::shared_ptr<const std::vector<tokenizer::Token>> end_tokens;
  bool ignores_end = false;                   // none of them is chosen
  std::optional<std::uint32_t> top_logprobs;  // nothing: no log probabilities are wanted
  std::function<std::string_view(tokenizer::Token)> piece;  // empty: as the tokenizer says
  // Takes what a text holds besides the answer out of it; empty: nothing.
  std::function<void(Completion&)> take_apart;
  // Makes a function that is told the text as it comes, and may give tokens that come next in the
  // place of the model's; empty: none.
  using Forced = std::function<std::vector<tokenizer::Token>(std::string_view text)>;
  std::function<Forced()> watch;
  std::uint64_t held_bytes = 0;  // that rows_bytes() does not count
};

// How a task ended: with a completion, or with a reason why there is none.
struct Outcome {
  Completion completion;
  std::string problem;  // empty when all is well
};

struct SchedulerOptions {
  std::uint32_t parallel = 1;  // sequences together, at most; the engine's limits go first
  std::uint32_t shared_tokens_min = 32;
  std::size_t kept_max = 4;  // finished sequences
};

struct SchedulerCounts {
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens_evaluated = 0;
  std::uint64_t prompt_tokens_shared = 0;  // taken over from another sequence
  std::uint64_t tokens_generated = 0;
  std::uint64_t running_max = 0;  // sequences in one step
};

// The most that a scheduler holds of rows that run and of sequences that it keeps, their pages
// apart, when no row has more than so many positions.
std::uint64_t rows_bytes(const SchedulerOptions& options, std::uint64_t positions);

class Scheduler {
 public:
  using Source = std::function<std::optional<Task>()>;  // nothing: there are no more
  using Sink = std::function<void(const Task&, const Outcome&)>;

  // `engine` outlives the scheduler.
  Scheduler(engine::Engine& engine, const SchedulerOptions& options, Source source, Sink sink);
  ~Scheduler();

  // Admits what there is room for and makes one step. Returns false when nothing is left to do.
  // Throws what the engine, the source and the sink throw.
  bool step();

  // From now on no row is admitted, and those that have not begun to generate are dropped.
  void wind_down();

  std::size_t running() const { return running_.size(); }
  const SchedulerCounts& counts() const { return counts_; }

 private:
  struct Running;
  struct Kept;

  void admit();
  bool start(Running& row);
  bool has_to_wait(const Running& row) const;
  std::unique_ptr<engine::Sequence> make_sequence(const Running& row);
  std::unique_ptr<engine::Sequence> fork_of(const engine::Sequence& source, std::size_t shared,
                                            std::uint32_t positions);
  void gather();
  void advance(Running& row, std::size_t tokens, std::span<const float> logits);
  void take_token(Running& row, std::span<const float> logits);
  tokenizer::Token choose_token(Running& row, std::span<const float> logits);
  void finish(Running& row, Finish reason);
  void fail(Running& row, const std::string& problem);
  void keep(Running& row);
  void remove_finished();

  engine::Engine& engine_;
  SchedulerOptions options_;
  Source source_;
  Sink sink_;
  bool source_is_empty_ = false;
  std::vector<std::unique_ptr<Running>> running_;
  std::deque<Kept> kept_;
  std::vector<engine::SequenceWork> works_;  // of the current step, with whose they are
  std::vector<Running*> workers_;
  std::shared_ptr<engine::SamplerScratch> scratch_ = std::make_shared<engine::SamplerScratch>();
  SchedulerCounts counts_;
};

}  // namespace sluice::batch
