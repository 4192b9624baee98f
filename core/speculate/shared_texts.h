// Texts that have ended, as a help with the drafts of others: results of a batch are often alike.
// Texts of different groups never help each other, since how long a text takes would tell what is
// in the others.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/speculate/token_index.h"

namespace sluice::speculate {

class SharedTexts {
 public:
  static constexpr std::size_t tokens_max = std::size_t{1} << 14;  // of all texts, the newest
  static constexpr std::uint64_t bytes_max = TokenIndex::bytes_of(tokens_max);

  // Keeps a text, of which the last `written` tokens were chosen by the model: as much of it as
  // tells where these belong.
  void add(std::uint32_t group, std::span<const tokenizer::Token> text, std::size_t written);

  // What came in a text of this group behind tokens that agree with the end of `text`: the tokens
  // up to the end of that text, and of how many tokens they agree. Valid until the next add().
  struct Found {
    std::span<const tokenizer::Token> next;
    std::size_t agreement = 0;
  };
  Found find(std::uint32_t group, std::span<const tokenizer::Token> text) const;

 private:
  struct Text {
    std::size_t end;  // the position behind its last token
    std::uint32_t group;
  };
  const Text& text_at(std::size_t position) const;

  TokenIndex index_{tokens_max};
  std::vector<Text> texts_;  // in their order
};

}  // namespace sluice::speculate
