// The tokens of a row: those of its prompt, and behind them those that were generated. The oldest
// may be forgotten, so that a text without end takes no more and more memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::serve {

class RowTokens {
 public:
  using Token = tokenizer::Token;

  std::size_t size() const { return forgotten_ + held_.size(); }
  std::size_t held() const { return held_.size(); }

  void add(Token token) { held_.push_back(token); }
  void add(std::span<const Token> tokens) {
    held_.insert(held_.end(), tokens.begin(), tokens.end());
  }

  // The tokens from `position` on, none of which may be forgotten.
  std::span<const Token> from(std::size_t position) const {
    return std::span(held_).subspan(position - forgotten_);
  }

  // All tokens; none at all when some are forgotten.
  std::span<const Token> whole() const {
    return forgotten_ == 0 ? std::span(held_) : std::span<const Token>();
  }

  // Forgets the tokens before `position`, or keeps less than `forgotten_at_once` of them: each time
  // those behind them are moved.
  void forget(std::size_t position) {
    const std::size_t count = position - forgotten_;
    if (count < forgotten_at_once) return;
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
    forgotten_ = position;
  }
  static constexpr std::size_t forgotten_at_once = 4096;

 private:
  std::vector<Token> held_;
  std::size_t forgotten_ = 0;
};

}  // namespace sluice::serve
