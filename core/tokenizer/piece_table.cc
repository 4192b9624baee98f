#include "core/tokenizer/piece_table.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/text/byte_alphabet.h"
#include "core/text/keyed_hash.h"

namespace sluice::tokenizer {

std::string with_spaces(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i).starts_with(space_mark)) {
      result += ' ';
      i += space_mark.size();
    } else {
      result += text[i++];
    }
  }
  return result;
}

std::size_t first_word_bytes(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return text.size();
  return std::min(text.find(' ', first), text.size());
}

PieceTable::PieceTable(const Vocabulary& vocabulary) {
  std::size_t bytes = 0;
  for (const std::string& text : vocabulary.tokens) bytes += text.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw vocabulary_error(vocabulary, "tokenizer.ggml.tokens", "the texts exceed 4 GiB");
  }
  const std::size_t count = vocabulary.tokens.size();
  bytes_.reserve(bytes);
  ends_.reserve(count);
  slots_.assign(std::bit_ceil(count + count / 2 + 1), -1);
  for (std::size_t i = 0; i < count; ++i) append(static_cast<Token>(i), vocabulary);
}

void PieceTable::append(Token token, const Vocabulary& vocabulary) {
  const auto index = static_cast<std::size_t>(token);
  const std::string& text = vocabulary.tokens[index];
  const TokenType type = vocabulary.types[index];
  const bool byte_level = vocabulary.kind == VocabularyKind::byte_level;
  const bool is_of_bytes = byte_level || vocabulary.kind == VocabularyKind::longest_pieces;
  const bool normal = type == TokenType::normal;
  std::string decoded;
  bool indexed = false;
  if (type == TokenType::byte) {
    const std::uint8_t byte = byte_token_value(text).value();
    bytes_ += static_cast<char>(byte);
    if (byte_tokens_[byte] < 0) byte_tokens_[byte] = token;
  } else if (byte_level && (normal || type == TokenType::unused) &&
             text::decode_byte_alphabet(text, decoded)) {
    bytes_ += decoded;
    indexed = normal;
  } else if (!byte_level && (normal || type == TokenType::unused)) {
    bytes_ += is_of_bytes ? text : with_spaces(text);
    indexed = normal;
  } else {
    bytes_ += text;
  }
  ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  if (indexed) add_to_index(token);
  if (indexed && is_of_bytes && piece(token).size() == 1) {
    byte_tokens_[static_cast<std::uint8_t>(piece(token)[0])] = token;
  }
}

void PieceTable::add_to_index(Token token) {
  const std::string_view bytes = piece(token);
  normal_bytes_max_ = std::max(normal_bytes_max_, bytes.size());
  if (first_word_bytes(bytes) < bytes.size()) spaces_start_tokens_ = false;
  pairs_.add(bytes);
  // Two texts may stand for the same bytes, when one has a plain space; the first one wins.
  Token& slot = slots_[slot_of(bytes)];
  if (slot < 0) slot = token;
}

std::string_view PieceTable::piece(Token token) const {
  const auto index = static_cast<std::size_t>(token);
  const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::string_view(bytes_).substr(begin, ends_[index] - begin);
}

Token PieceTable::find(std::string_view bytes) const {
  if (bytes.size() > normal_bytes_max_) return -1;
  return slots_[slot_of(bytes)];
}

// The slot with these bytes, or the free slot where they would be.
std::size_t PieceTable::slot_of(std::string_view bytes) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = text::KeyedHash{}(bytes)&mask;
  while (slots_[slot] >= 0 && piece(slots_[slot]) != bytes) slot = (slot + 1) & mask;
  return slot;
}

}  // namespace sluice::tokenizer
