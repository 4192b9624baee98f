// The bytes that each token stands for, in one block of memory, and a lookup from bytes to tokens.
// Immutable after construction.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/vocabulary.h"

namespace sluice::tokenizer {

// Which bytes stand side by side anywhere in a set of texts.
class BytePairs {
 public:
  void add(char left, char right) { pairs_.set(index(left, right)); }
  void add(std::string_view text) {
    for (std::size_t i = 0; i + 1 < text.size(); ++i) add(text[i], text[i + 1]);
  }
  bool has(char left, char right) const { return pairs_[index(left, right)]; }

 private:
  static std::size_t index(char left, char right) {
    return std::size_t{static_cast<std::uint8_t>(left)} << 8 | static_cast<std::uint8_t>(right);
  }
  std::bitset<std::size_t{1} << 16> pairs_;
};

class PieceTable {
 public:
  // Makes the pieces of a classified vocabulary:
  // - byte tokens stand for their byte;
  // - normal tokens stand for their text (longest_pieces), with each character mapped back to its
  //   byte (byte_level) or with U+2581 read as a space (the other kinds);
  // - all other tokens stand for their text as it is.
  explicit PieceTable(const Vocabulary& vocabulary);

  std::size_t size() const { return ends_.size(); }

  // `token` must be in range.
  std::string_view piece(Token token) const;

  // The normal token with these bytes, or -1: text never turns into a control token by itself.
  Token find(std::string_view bytes) const;

  // The byte token of `byte`; -1 when there is none. In vocabularies of bytes (byte_level,
  // longest_pieces) the normal tokens of one byte count as byte tokens.
  Token byte_token(std::uint8_t byte) const { return byte_tokens_[byte]; }

  // True if no normal token has a space behind another character. A text may then be cut before
  // each such space without changing how it is merged.
  bool spaces_start_tokens() const { return spaces_start_tokens_; }

  // The pairs of bytes in the normal tokens.
  const BytePairs& pairs() const { return pairs_; }

 private:
  void append(Token token, const Vocabulary& vocabulary);
  void add_to_index(Token token);
  std::size_t slot_of(std::string_view bytes) const;

  std::string bytes_;                // all pieces, end to end
  std::vector<std::uint32_t> ends_;  // of each piece in bytes_
  std::vector<Token> slots_;         // hash table with linear probing; -1: free
  std::vector<Token> byte_tokens_ = std::vector<Token>(256, -1);
  std::size_t normal_bytes_max_ = 0;  // the longest that find() knows
  bool spaces_start_tokens_ = true;
  BytePairs pairs_;
};

// How SentencePiece writes a space.
constexpr std::string_view space_mark = "\u2581";

// `text` with the marks replaced by spaces.
std::string with_spaces(std::string_view text);

// The length in bytes of the first word of `text`: up to the first space behind another character.
std::size_t first_word_bytes(std::string_view text);

}  // namespace sluice::tokenizer
