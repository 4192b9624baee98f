// One text of an engine, as the scheduler makes it: restored, evaluated in steps, saved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/engine.h"

namespace sluice::test {

class SequenceText {
 public:
  using Tokens = std::span<const tokenizer::Token>;

  // It has all room that the engine has. `tokens`: how many it will have before logits are wanted.
  SequenceText(engine::Engine& engine, std::size_t tokens)
      : engine_(engine), sequence_(engine.new_sequence(engine.free_positions())) {
    sequence_->expect(static_cast<std::uint32_t>(tokens));
  }

  std::uint32_t restore(Tokens tokens) { return engine_.restore(*sequence_, tokens); }
  void save(Tokens tokens) { engine_.save(*sequence_, tokens); }

  // Returns the logits after the last token, if they are wanted.
  std::vector<float> append(Tokens tokens, bool wants_logits = true) {
    std::vector<float> last;
    while (!tokens.empty()) {
      const std::size_t count = std::min<std::size_t>(tokens.size(), engine_.step_columns());
      const bool is_last = count == tokens.size();
      const engine::SequenceWork work{sequence_.get(), tokens.first(count),
                                      is_last && wants_logits};
      const std::span<const float> logits = engine_.step({&work, 1}).front();
      last.assign(logits.begin(), logits.end());
      tokens = tokens.subspan(count);
    }
    return last;
  }

  engine::Sequence& sequence() { return *sequence_; }

 private:
  engine::Engine& engine_;
  std::unique_ptr<engine::Sequence> sequence_;
};

}  // namespace sluice::test
