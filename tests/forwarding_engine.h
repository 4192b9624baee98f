// An engine that does what another one does: for tests that change a part of it, or that look at
// the other one when this one has gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/engine.h"

namespace sluice::test {

class ForwardingEngine : public engine::Engine {
 public:
  // `to` outlives this, and has no other user.
  explicit ForwardingEngine(engine::Engine& to) : to_(to) {}

  const tokenizer::Tokenizer& tokenizer() const override { return to_.tokenizer(); }
  const engine::EngineFacts& facts() const override { return to_.facts(); }
  const plan::MemoryPlan& plan() const override { return to_.plan(); }
  streaming::TapeStatistics tape_statistics() const override { return to_.tape_statistics(); }
  std::optional<streaming::ExpertStatistics> expert_statistics() const override {
    return to_.expert_statistics();
  }
  std::unique_ptr<engine::Sequence> new_sequence(std::uint32_t positions) override {
    return to_.new_sequence(positions);
  }
  std::unique_ptr<engine::Sequence> fork(const engine::Sequence& source, std::uint32_t prefix,
                                         std::uint32_t positions) override {
    return to_.fork(source, prefix, positions);
  }
  std::uint32_t restore(engine::Sequence& sequence,
                        std::span<const tokenizer::Token> tokens) override {
    return to_.restore(sequence, tokens);
  }
  void save(const engine::Sequence& sequence, std::span<const tokenizer::Token> tokens) override {
    to_.save(sequence, tokens);
  }
  std::span<const std::span<const float>> step(
      std::span<const engine::SequenceWork> works) override {
    return to_.step(works);
  }
  void predict(engine::Sequence& sequence, tokenizer::Token next, std::size_t most,
               const engine::ChooseGuess& choose) override {
    to_.predict(sequence, next, most, choose);
  }
  std::vector<float> text_vector(std::span<const float> pooled) const override {
    return to_.text_vector(pooled);
  }
  std::uint32_t step_columns() const override { return to_.step_columns(); }
  std::uint32_t step_logits() const override { return to_.step_logits(); }
  std::uint32_t free_positions() const override { return to_.free_positions(); }
  engine::Session& session() override { return to_.session(); }

 private:
  engine::Engine& to_;
};

}  // namespace sluice::test
