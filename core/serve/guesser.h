// Drafts from the model itself: from its block that predicts further tokens (Engine::predict),
// which goes on from the hidden state of the text's last token but one.
//
// Guesser: the block, which all rows of a scheduler share. A row has a source of its own, which
// guesses behind the sequence of the row.
//
// Threads: used by the thread of the scheduler.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/engine/engine.h"
#include "core/speculate/draft_time.h"
#include "core/speculate/source.h"

namespace sluice::serve {

class Guesser {
 public:
  // `engine` has such a block, and outlives this. Measures how long a guess takes.
  explicit Guesser(engine::Engine& engine);

  // Seconds for a guess: a mean that forgets.
  double seconds_each() const { return time_.seconds_each(); }

  // What comes behind `next`, the next token of the sequence; at most `most` tokens, nothing behind
  // an end, and nothing behind tokens that are all right with a lower probability than `least`.
  std::vector<speculate::Draft> guess(engine::Sequence& sequence, tokenizer::Token next,
                                      std::size_t most, double least);

 private:
  engine::Engine& engine_;
  speculate::DraftTime time_;
};

// The source of the row that has the sequence, while it has one. Both outlive the source.
std::unique_ptr<speculate::Source> make_guessing_source(
    Guesser& guesser, const std::unique_ptr<engine::Sequence>& sequence);

}  // namespace sluice::serve
