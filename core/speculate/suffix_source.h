// Drafts from the text itself: where its last tokens have occurred before, what came behind them
// then may come again. Of the places where they occurred, the one that agrees with the end of the
// text for the most tokens is taken, and of equal ones the newest. This finds what n-grams find,
// and longer repetitions too: quotes, edits of a text, the keys of JSON, names.
//
// The index is that of an LZ77 compressor: the newest place of each pair of tokens, and for each
// place the one before it of the same pair, as far as a hash tells. Only the newest tokens are
// held, tokens_max at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/speculate/source.h"

namespace sluice::speculate {

class SuffixSource final : public Source {
 public:
  static constexpr std::size_t tokens_max = std::size_t{1} << 16;
  // The most memory for a text of so many tokens, with the room that vectors have to grow.
  static constexpr std::uint64_t bytes_of(std::uint64_t tokens) {
    return 32 * (tokens < tokens_max ? tokens : tokens_max);
  }

  // `expected`: a text like the one that will be written (OpenAI's prediction). It is looked up as
  // if it stood before the text.
  explicit SuffixSource(std::vector<tokenizer::Token> expected = {});

  Kind kind() const override { return Kind::suffix; }
  void propose(std::size_t most, double least, std::vector<Draft>& drafts) override;
  void accepted(std::span<const tokenizer::Token> tokens) override;
  void forget() override;

 private:
  struct Match {
    std::size_t next = 0;       // the position of what came behind it
    std::size_t agreement = 0;  // of how many tokens; 0: no match
  };

  Match find() const;
  std::size_t agreement_at(std::size_t next) const;
  std::size_t slot_of(std::size_t position) const;
  void link(std::size_t position);
  void link_all();

  std::vector<tokenizer::Token> expected_;
  std::vector<tokenizer::Token> tokens_;
  // Positions of the second token of a pair; 0: none. By the hash of the pair, a power of two; and
  // for each position the one before it with the same hash.
  std::vector<std::uint32_t> newest_, earlier_;
  std::size_t follows_ = 0;  // the position behind the last match, as long as it holds; 0: none
};

}  // namespace sluice::speculate
