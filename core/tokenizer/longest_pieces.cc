#include "core/tokenizer/longest_pieces.h"

#include <algorithm>
#include <cstdint>

namespace sluice::tokenizer {

LongestPieces::LongestPieces(const Vocabulary& vocabulary) : VocabularyTokenizer(vocabulary) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    if (text.empty() || vocabulary.types[i] != TokenType::normal) continue;
    std::size_t& most = bytes_max_[static_cast<std::uint8_t>(text.front())];
    most = std::max(most, text.size());
  }
}

void LongestPieces::encode_fragment(std::string_view text, bool /*after_special*/,
                                    std::vector<Token>& out) const {
  while (!text.empty()) {
    Token token = -1;
    std::size_t bytes = std::min(bytes_max_[static_cast<std::uint8_t>(text.front())], text.size());
    for (; bytes > 0; --bytes) {
      token = pieces().find(text.substr(0, bytes));
      if (token >= 0) break;
    }
    if (token >= 0) {
      out.push_back(token);
    } else {
      bytes = 1;
      append_bytes(text.substr(0, bytes), out);
    }
    text.remove_prefix(bytes);
  }
}

// A token that reached across the cut would have these two bytes side by side.
bool LongestPieces::may_cut(std::string_view text, std::size_t at) const {
  return !pieces().pairs().has(text[at - 1], text[at]);
}

}  // namespace sluice::tokenizer
