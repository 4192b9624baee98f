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

#include "core/engine/engine.h"
#include "core/engine/sampler.h"
#include "core/engine/text_stream.h"
#include "core/serve/task.h"

namespace sluice::serve {

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
  // Returns a task of this priority or a higher one; nothing when there is none now.
  using Source = std::function<std::optional<Task>(Priority least)>;
  using Sink = std::function<void(const Task&, const Outcome&)>;
  using TokenSink = std::function<void(const Task&, const TokenEvent&)>;

  // `engine` must outlive the scheduler. Each task gets any number of token events and then one
  // outcome. `tokens` may be empty.
  Scheduler(engine::Engine& engine, const SchedulerOptions& options, Source source, Sink sink,
            TokenSink tokens = {});
  ~Scheduler();

  // Admits the rows that there is room for, and runs one step. Returns false when nothing is left
  // to do. Throws what the engine, the source and the sinks throw. When the engine throws, rows are
  // as before the step.
  bool step();

  // Asks the source no more, and drops those that have not begun to generate.
  void wind_down();

  // Ends a row that was admitted; it gets its outcome with the next step. May be called while the
  // engine computes a step, by the thread of step(). Returns false when there is no such row.
  bool cancel(std::uint64_t id, std::string_view reason);

  // Ends all rows as failed.
  void end_all(const std::string& problem);

  // Whether a step that is being computed serves only or mostly rows that were cancelled, so that
  // it is better to give it up. False after a step that was given up, so that the others get on.
  bool should_give_up() const;

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
  void fail(Running& row, const std::string& problem, Outcome::End end);
  void tell(const Running& row, std::string_view text, std::optional<tokenizer::Token> token);
  void end_cancelled();
  void keep(Running& row);
  void remove_finished();

  engine::Engine& engine_;
  SchedulerOptions options_;
  Source source_;
  Sink sink_;
  TokenSink tokens_;
  bool is_winding_down_ = false;
  bool was_given_up_ = false;  // the last step
  bool has_to_end_ = false;    // the present step, because the one before it was given up
  std::vector<std::unique_ptr<Running>> running_;
  std::deque<Kept> kept_;
  std::vector<engine::SequenceWork> works_;  // of the current step, and their rows
  std::vector<Running*> workers_;
  std::shared_ptr<engine::SamplerScratch> scratch_ = std::make_shared<engine::SamplerScratch>();
  SchedulerCounts counts_;
};

}  // namespace sluice::serve
