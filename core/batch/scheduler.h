// Continuous batching: many sequences share each pass over the tape.
//
// Every step takes one token of each sequence that generates, and fills the rest of step_columns()
// with pieces of prompts. A finished sequence is replaced before the next step. Rows are admitted
// in the order of the source; a row that does not fit into the cache waits.
//
// Common prefixes are evaluated once. A row whose prompt shares `shared_tokens_min` or more tokens
// with that of a running row waits until these are evaluated, and then begins as a fork of it (or
// from nothing if they have slid out of a window). A few finished sequences are kept for later
// rows, until their pages are needed.
//
// The tokens of a row depend on the row alone: the engine's logits do not depend on what else is in
// a step, and each row has its own sampler. So the scheduler is free to choose the order.
//
// Threads: used by one thread.
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

// A row that is ready to run. It has at least one prompt token, and all are in the vocabulary;
// prompt.size() + tokens_max is at most the positions of a sequence.
struct Task {
  std::uint64_t row = 0;
  RowHeader header;
  std::uint32_t choice = 0;   // which of the row's results this is, from 0
  std::uint32_t choices = 1;  // how many results the row wants
  std::vector<tokenizer::Token> prompt;
  std::uint64_t truncated_tokens = 0;
  std::uint32_t tokens_max = 0;
  std::uint32_t tokens_min = 0;  // no token that ends the text is chosen before this many
  engine::SamplerOptions sampler;
  std::vector<std::string> stop;
  std::vector<tokenizer::Token> stop_tokens;
  // The tokens that end the text, ascending.
  std::shared_ptr<const std::vector<tokenizer::Token>> end_tokens;
  bool ignores_end = false;                                 // none of end_tokens is chosen
  std::optional<std::uint32_t> top_logprobs;                // nothing: no log probabilities
  std::function<std::string_view(tokenizer::Token)> piece;  // empty: the tokenizer's
  // Splits off what a text holds besides the answer (thoughts, tool calls); empty: nothing is split
  // off.
  std::function<void(Completion&)> take_apart;
  // Makes a function that is called with the text as it comes. The tokens that it returns come
  // next, in place of the model's. Empty: none.
  using Forced = std::function<std::vector<tokenizer::Token>(std::string_view text)>;
  std::function<Forced()> watch;
  std::uint64_t held_bytes = 0;  // memory that rows_bytes() does not count
};

// How a task ended: with a completion, or with the reason why there is none.
struct Outcome {
  Completion completion;
  std::string problem;  // empty: no problem
};

struct SchedulerOptions {
  std::uint32_t parallel = 1;  // most sequences in a step; the engine's limits apply first
  std::uint32_t shared_tokens_min = 32;
  std::size_t kept_max = 4;  // finished sequences that are kept for their prompts
};

struct SchedulerCounts {
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens_evaluated = 0;
  std::uint64_t prompt_tokens_shared = 0;  // copied from another sequence by sharing its pages
  std::uint64_t tokens_generated = 0;
  std::uint64_t running_max = 0;  // most sequences in one step
};

// The most bytes that a scheduler holds for running rows and kept sequences, without their pages,
// when no row has more than `positions` positions.
std::uint64_t rows_bytes(const SchedulerOptions& options, std::uint64_t positions);

class Scheduler {
 public:
  using Source = std::function<std::optional<Task>()>;  // nothing: no more tasks
  using Sink = std::function<void(const Task&, const Outcome&)>;

  // `engine` must outlive the scheduler.
  Scheduler(engine::Engine& engine, const SchedulerOptions& options, Source source, Sink sink);
  ~Scheduler();

  // Admits the rows that there is room for, and runs one step. Returns false when nothing is left
  // to do. Throws what the engine, the source and the sink throw.
  bool step();

  // Admits no more rows, and drops those that have not begun to generate.
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
  std::vector<engine::SequenceWork> works_;  // of the current step, and their rows
  std::vector<Running*> workers_;
  std::shared_ptr<engine::SamplerScratch> scratch_ = std::make_shared<engine::SamplerScratch>();
  SchedulerCounts counts_;
};

}  // namespace sluice::batch
