#include "core/constrain/token_trie.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace sluice::constrain {

using tokenizer::Token;

namespace {

// A longer token is left out: its bytes can always be written as shorter ones.
constexpr std::size_t token_bytes_max = 1024;

constexpr char mark_byte = '\xFF';

// Ordinary tokens, and white space that a vocabulary lists as found before anything else: models
// that have such tokens write their newlines with them. Control tokens have no piece.
bool is_text(const tokenizer::Tokenizer& tokenizer, Token token) {
  if (tokenizer.is_end_of_generation(token)) return false;
  const std::string_view piece = tokenizer.piece(token);
  const bool is_blank = piece.find_first_not_of(" \t\n\r") == std::string_view::npos;
  return !piece.empty() && (is_blank || tokenizer.is_ordinary(token));
}

}  // namespace

// The number of the token in digits of six bits, none of which is a character by itself.
std::string mark_bytes(Token token) {
  std::string bytes(1, mark_byte);
  for (unsigned shift = 0; shift < 30; shift += 6) {
    bytes += static_cast<char>(0x80U | (static_cast<std::uint32_t>(token) >> shift & 0x3FU));
  }
  return bytes;
}

TokenTrie::TokenTrie(const tokenizer::Tokenizer& tokenizer, std::span<const Token> marks) {
  std::vector<Token> sorted;
  for (std::size_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto token = static_cast<Token>(id);
    if (std::ranges::find(marks, token) != marks.end()) {
      pieces_ += mark_bytes(token);
      sorted.push_back(token);
    } else if (is_text(tokenizer, token)) {
      const std::string_view piece = tokenizer.piece(token);
      const bool has_mark = piece.find(mark_byte) != std::string_view::npos;
      if (!has_mark && piece.size() <= token_bytes_max) {
        pieces_ += piece;
        sorted.push_back(token);
      }
    }
    pieces_end_.push_back(static_cast<std::uint32_t>(pieces_.size()));
  }
  pieces_.shrink_to_fit();
  std::ranges::sort(sorted, [&](Token a, Token b) {
    const int order = piece(a).compare(piece(b));
    return order != 0 ? order < 0 : a < b;
  });
  add_nodes(sorted);
}

std::string_view TokenTrie::piece(Token token) const {
  const auto id = static_cast<std::size_t>(token);
  if (token < 0 || id >= pieces_end_.size()) return {};
  const std::uint32_t begin = id == 0 ? 0 : pieces_end_[id - 1];
  return std::string_view(pieces_).substr(begin, pieces_end_[id] - begin);
}

// `sorted` is in the order of bytes, so each token continues the path of the one before it.
void TokenTrie::add_nodes(const std::vector<Token>& sorted) {
  std::vector<std::size_t> path;  // the nodes from the root to the last token
  std::string_view before;
  Token token_before = -1;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
    }
  };
  for (const Token token : sorted) {
    const std::string_view bytes = piece(token);
    if (bytes == before) {
      twins_.emplace_back(token_before, token);
      continue;
    }
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(before, bytes).in2 - bytes.begin());
    close(common);
    for (std::size_t i = common; i < bytes.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back({0, -1, static_cast<std::uint16_t>(i + 1),
                        static_cast<std::uint8_t>(static_cast<unsigned char>(bytes[i]))});
    }
    nodes_.back().token = token;
    longest_ = std::max(longest_, bytes.size());
    before = bytes;
    token_before = token;
  }
  close(0);
  nodes_.shrink_to_fit();
}

}  // namespace sluice::constrain
