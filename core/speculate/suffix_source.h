// Drafts from the text itself: where its last tokens have occurred before, what came behind them
// then may come again. Of the places where they occurred, the one that agrees with the end of the
// text for the most tokens is taken, and of equal ones the newest. This finds what n-grams find,
// and longer repetitions too: quotes, edits of a text, the keys of JSON, names. Texts that have
// ended are looked through in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/speculate/shared_texts.h"
#include "core/speculate/source.h"
#include "core/speculate/token_index.h"

namespace sluice::speculate {

class SuffixSource final : public Source {
 public:
  static constexpr std::size_t tokens_max = std::size_t{1} << 16;  // the newest of a text
  // The most memory for a text of so many tokens.
  static constexpr std::uint64_t bytes_of(std::uint64_t tokens) {
    return TokenIndex::bytes_of(tokens < tokens_max ? tokens : tokens_max);
  }

  // `expected`: a text like the one that will be written (OpenAI's prediction). It is looked up as
  // if it stood before the text. `shared`: texts of others, those of this group; null: none.
  explicit SuffixSource(std::vector<tokenizer::Token> expected = {},
                        std::shared_ptr<SharedTexts> shared = nullptr, std::uint32_t group = 0);

  Kind kind() const override { return Kind::suffix; }
  void propose(const Wanted& wanted, std::vector<Draft>& drafts) override;
  void accepted(std::span<const tokenizer::Token> tokens) override;
  void forget() override;
  void ended(std::size_t written) override;

 private:
  Match find() const;

  std::vector<tokenizer::Token> expected_;
  std::shared_ptr<SharedTexts> shared_;
  std::uint32_t group_;
  TokenIndex index_{tokens_max};
  std::size_t follows_ = 0;  // the position behind the last match, as long as it holds; 0: none
};

}  // namespace sluice::speculate
