// Drafts from a second, small model, which reads the same text and says what it would write itself.
//
// Drafter: the model, as its engine, which all rows of a scheduler share. A row has a source of its
// own, with a sequence of the model. There are a few sequences; rows that find none get no drafts.
//
// What a source has evaluated follows the text: drafts that were wrong are cut off the sequence.
// Where that cannot be done, since a state or a window has gone on, drafts are evaluated in a fork.
//
// Threads: used by the thread of the scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/speculate/draft_time.h"
#include "core/speculate/likeliest.h"
#include "core/speculate/source.h"

namespace sluice::serve {

class Drafter {
 public:
  // What a source holds for each token of its row, with the room that vectors have to grow.
  static constexpr std::uint64_t bytes_per_token = 2 * sizeof(tokenizer::Token);

  // Each sequence has room for `positions` tokens, if there is a limit. Measures how long a draft
  // takes, and evaluates a few tokens for that.
  Drafter(std::unique_ptr<engine::Engine> engine, std::uint32_t positions);

  const engine::Engine& engine() const { return *engine_; }
  std::uint32_t positions() const { return positions_; }

  // Seconds for the next token of a text: a mean that forgets.
  double seconds_each() const { return time_.seconds_each(); }

  // An empty sequence; null when all are taken.
  std::unique_ptr<engine::Sequence> new_sequence();
  // A sequence that begins as this one, with room for so many further tokens; null if there is
  // none.
  std::unique_ptr<engine::Sequence> fork(const engine::Sequence& source, std::size_t more);

  // Appends tokens, as many as step_columns() at most.
  void read(engine::Sequence& sequence, std::span<const tokenizer::Token> tokens);
  // The same, and returns the likeliest token behind them, of those that are allowed
  // (speculate/likeliest.h).
  speculate::Likeliest next(engine::Sequence& sequence, std::span<const tokenizer::Token> tokens,
                            std::span<const std::uint64_t> allowed = {});

 private:
  std::unique_ptr<engine::Engine> engine_;
  std::uint32_t positions_;
  speculate::DraftTime time_;
};

// The source of a row.
std::unique_ptr<speculate::Source> make_draft_source(std::shared_ptr<Drafter> drafter);

}  // namespace sluice::serve
