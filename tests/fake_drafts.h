// Sources of drafts for tests: some know the text that will be written, some guess, some lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/speculate/shared_texts.h"
#include "core/speculate/source.h"
#include "core/speculate/suffix_source.h"

namespace sluice::test {

// Proposes what it was told that the text will be, as far as it is honest.
class ToldSource final : public speculate::Source {
 public:
  using Token = tokenizer::Token;

  enum class Manner {
    right,    // says what it knows
    wrong,    // now and then says something else
    hostile,  // also says too much, what is no token, and throws
  };

  // `text`: of the prompt and what comes behind it.
  ToldSource(std::vector<Token> text, Manner manner, std::uint64_t seed, Token vocabulary)
      : text_(std::move(text)), manner_(manner), random_(seed), vocabulary_(vocabulary) {}

  speculate::Kind kind() const override { return speculate::Kind::suffix; }
  void propose(const speculate::Wanted& wanted, std::vector<speculate::Draft>& drafts) override {
    const std::size_t most = wanted.most;
    const bool is_hostile = manner_ == Manner::hostile;
    if (is_hostile && random_() % 60 == 0) throw std::runtime_error("no idea");
    const std::size_t count = is_hostile && random_() % 3 == 0 ? most + 5 : most;
    for (std::size_t i = 0; i < count; ++i) {
      Token token = at_ + i < text_.size() ? text_[at_ + i] : 0;
      if (manner_ != Manner::right && random_() % 4 == 0) token = any();
      drafts.push_back({token, static_cast<std::uint8_t>(random_() % (is_hostile ? 256 : 16))});
    }
  }
  void accepted(std::span<const Token> tokens) override {
    if (manner_ == Manner::hostile && random_() % 200 == 0) throw std::bad_alloc();
    at_ += tokens.size();
  }
  void forget() override { at_ = 0; }

 private:
  Token any() {
    if (manner_ == Manner::hostile && random_() % 4 == 0) {
      return random_() % 2 == 0 ? -1 : std::numeric_limits<Token>::max();
    }
    return static_cast<Token>(random_() % static_cast<std::uint64_t>(vocabulary_));
  }

  std::vector<Token> text_;
  Manner manner_;
  std::mt19937_64 random_;
  Token vocabulary_;
  std::size_t at_ = 0;
};

// A grammar of a kind: what may come depends on the number of tokens before it. Now and then one
// token has to come.
class FakeChoices final : public speculate::Choices {
 public:
  using Token = tokenizer::Token;

  // `place`: how many tokens stand before; the text is over with `end` of them.
  FakeChoices(std::size_t place, Token vocabulary,
              std::size_t end = std::numeric_limits<std::size_t>::max())
      : place_(place), end_(end), vocabulary_(vocabulary) {}

  bool may_come(Token token) const {
    if (place_ % 4 == 3) return token == first_token + static_cast<Token>(place_ % 7);
    return (static_cast<std::size_t>(token) + place_) % 3 != 0;
  }
  std::span<const std::uint64_t> allowed() override {
    const auto count = static_cast<std::size_t>(vocabulary_);
    mask_.assign((count + 63) / 64, 0);
    for (std::size_t i = 0; i < count; ++i) {
      if (may_come(static_cast<Token>(i))) mask_[i / 64] |= std::uint64_t{1} << (i % 64);
    }
    return mask_;
  }
  std::optional<Token> only() override {
    if (is_over() || place_ % 4 != 3) return std::nullopt;
    return first_token + static_cast<Token>(place_ % 7);
  }
  bool take(Token token) override {
    if (is_over() || !may_come(token)) return false;
    ++place_;
    return true;
  }
  bool is_over() const override { return place_ >= end_; }

 private:
  static constexpr Token first_token = 3;
  std::size_t place_, end_;
  Token vocabulary_;
  std::vector<std::uint64_t> mask_;
};

// A source of any kind for the row with this text; `shared`: of texts that have ended.
inline std::unique_ptr<speculate::Source> any_source(
    std::vector<tokenizer::Token> text, std::uint64_t seed, tokenizer::Token vocabulary,
    std::shared_ptr<speculate::SharedTexts> shared) {
  using Manner = ToldSource::Manner;
  if (seed % 4 == 0) {
    return std::make_unique<speculate::SuffixSource>(std::vector<tokenizer::Token>(),
                                                     std::move(shared));
  }
  const Manner manner = seed % 4 == 1   ? Manner::right
                        : seed % 4 == 2 ? Manner::wrong
                                        : Manner::hostile;
  return std::make_unique<ToldSource>(std::move(text), manner, seed, vocabulary);
}

}  // namespace sluice::test
