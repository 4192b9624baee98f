#include "core/serve/guesser.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "core/speculate/likeliest.h"

namespace sluice::serve {

using engine::Sequence;
using speculate::Draft;
using tokenizer::Token;

namespace {

class GuessingSource final : public speculate::Source {
 public:
  GuessingSource(Guesser& guesser, const std::unique_ptr<Sequence>& sequence)
      : guesser_(guesser), sequence_(sequence) {}

  speculate::Kind kind() const override { return speculate::Kind::mtp; }
  // Never 0, which would say that guesses cost nothing.
  double seconds_each() const override {
    return std::max(guesser_.seconds_each(), std::numeric_limits<double>::min());
  }

  // What was proposed stays so until the text goes on: a step may be tried again.
  void propose(const speculate::Wanted& wanted, std::vector<Draft>& drafts) override {
    if (proposed_.empty()) find(wanted.most, wanted.least);
    const std::span<const Draft> first =
        std::span(proposed_).first(std::min(wanted.most, proposed_.size()));
    drafts.insert(drafts.end(), first.begin(), first.end());
  }

  void accepted(std::span<const Token> tokens) override {
    if (tokens.empty()) return;
    told_ += tokens.size();
    last_ = tokens.back();
    proposed_.clear();
  }

  void forget() override {
    told_ = 0;
    proposed_.clear();
  }

 private:
  // The state before a token is known where the sequence has all tokens before it.
  void find(std::size_t most, double least) {
    if (!sequence_ || std::uint64_t{sequence_->position()} + 1 != told_) return;
    most = std::min<std::size_t>(most, sequence_->capacity() - sequence_->position());
    if (most != 0) proposed_ = guesser_.guess(*sequence_, last_, most, least);
  }

  Guesser& guesser_;
  const std::unique_ptr<Sequence>& sequence_;
  std::uint64_t told_ = 0;  // tokens of the text
  Token last_ = 0;          // of these
  std::vector<Draft> proposed_;
};

}  // namespace

Guesser::Guesser(engine::Engine& engine) : engine_(engine) {
  constexpr std::size_t tries = 4;
  const std::unique_ptr<Sequence> sequence = engine_.new_sequence(1);
  for (std::size_t i = 0; sequence && i < tries; ++i) guess(*sequence, 0, 1, 0);
}

std::vector<Draft> Guesser::guess(Sequence& sequence, Token next, std::size_t most, double least) {
  std::vector<Draft> guesses;
  double chance = 1;
  const auto begin = std::chrono::steady_clock::now();
  engine_.predict(sequence, next, most, [&](std::span<const float> logits) {
    const auto known = logits.first(engine_.tokenizer().vocabulary_size());
    const auto [token, probability] = speculate::likeliest_of(known);
    guesses.push_back({token, speculate::grade_of(probability)});
    chance *= probability;
    const bool is_last = chance < least || engine_.tokenizer().is_end_of_generation(token);
    return is_last ? std::nullopt : std::optional(token);
  });
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (!guesses.empty()) time_.measured(taken.count() / static_cast<double>(guesses.size()));
  return guesses;
}

std::unique_ptr<speculate::Source> make_guessing_source(Guesser& guesser,
                                                        const std::unique_ptr<Sequence>& sequence) {
  return std::make_unique<GuessingSource>(guesser, sequence);
}

}  // namespace sluice::serve
