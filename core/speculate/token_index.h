// Tokens of texts, and where a pair of them has occurred. The index is that of an LZ77 compressor:
// the newest place of each pair of tokens, and for each place the one before it of the same pair,
// as far as a hash tells.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::speculate {

// A place whose tokens agree with the end of a text.
struct Match {
  std::size_t next = 0;       // the position of what came behind it
  std::size_t agreement = 0;  // of how many tokens; 0: no match
};

class TokenIndex {
 public:
  // The most memory for so many tokens, with the room that vectors have to grow.
  static constexpr std::uint64_t bytes_of(std::uint64_t tokens) { return 32 * tokens; }
  static constexpr std::size_t agreement_max = 64;  // longer ones are not told apart

  // Holds the newest tokens, `tokens_max` at most.
  explicit TokenIndex(std::size_t tokens_max);

  std::size_t size() const { return tokens_.size(); }
  std::span<const tokenizer::Token> tokens() const { return tokens_; }

  void clear();
  // Returns how many of the oldest tokens went for it: by so much the positions of all others have
  // become smaller.
  std::size_t add(tokenizer::Token token);

  // How many tokens before `next` agree with the end of the text.
  std::size_t agreement_at(std::size_t next, std::span<const tokenizer::Token> text) const;

  // Of the newest places of the text's last pair that have something behind them, the one that
  // agrees with the end of the text for the most tokens, at least two; of equal ones the newest.
  // `is_allowed`, if it is there, says whether what comes at a position may be taken.
  Match find(std::span<const tokenizer::Token> text,
             const std::function<bool(std::size_t next)>& is_allowed = {}) const;

 private:
  std::size_t slot_of(tokenizer::Token first, tokenizer::Token second) const;
  void link(std::size_t position);
  void link_all();

  std::size_t tokens_max_;
  std::vector<tokenizer::Token> tokens_;
  // Positions of the second token of a pair; 0: none. By the hash of the pair, a power of two; and
  // for each position the one before it with the same hash.
  std::vector<std::uint32_t> newest_, earlier_;
};

}  // namespace sluice::speculate
