#include "core/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/text/utf8.h"

namespace sluice::tokenizer {

namespace {

// Ids of symbols that are not tokens.
constexpr std::int32_t not_a_token = -1;  // a character that may still become part of one
constexpr std::int32_t bytes_only = -2;   // never merged

// An order-reversing map: a < b in floats is rank_of(a) > rank_of(b).
std::uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 becomes +0
  const bool negative = bits >> 31 != 0;
  return negative ? bits : ~(bits | 0x80000000U);
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(const Vocabulary& vocabulary) : VocabularyTokenizer(vocabulary) {
  ranks_.reserve(vocabulary.scores.size());
  for (const float score : vocabulary.scores) ranks_.push_back(rank_of(score));
}

void SentencePieceBpe::encode_fragment(std::string_view text, bool after_special,
                                       std::vector<Token>& out) const {
  Merger merger;
  bool prefix = after_special && add_space_prefix();
  while (!text.empty()) {
    const std::size_t bytes = pieces().spaces_start_tokens() ? first_word_bytes(text) : text.size();
    if (prefix) {
      encode_word(' ' + std::string(text.substr(0, bytes)), merger, out);
    } else {
      encode_word(text.substr(0, bytes), merger, out);
    }
    prefix = false;
    text.remove_prefix(bytes);
  }
}

bool SentencePieceBpe::may_cut(std::string_view text, std::size_t at) const {
  return !utf8::is_continuation(text[at]) && !pieces().pairs().has(text[at - 1], text[at]);
}

void SentencePieceBpe::encode_word(std::string_view word, Merger& merger,
                                   std::vector<Token>& out) const {
  merger.clear();
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t bytes = utf8::character_bytes(word.substr(i));
    const std::string_view character = word.substr(i, bytes);
    if (bytes == 0) {
      merger.push(1, bytes_only);
    } else {
      merger.push(bytes, character == space_mark ? bytes_only : pieces().find(character));
    }
    i += std::max<std::size_t>(bytes, 1);
  }
  merger.merge(
      [&](const Symbol& left, const Symbol& right) { return find_merge(word, left, right); });
  append_symbols(word, merger, out);
}

std::optional<Merge> SentencePieceBpe::find_merge(std::string_view word, const Symbol& left,
                                                  const Symbol& right) const {
  static_assert(not_a_token == -1, "what PieceTable::find gives");
  if (left.id == bytes_only || right.id == bytes_only) return std::nullopt;
  const Token token = pieces().find(word.substr(left.begin, left.bytes + right.bytes));
  if (token < 0) return std::nullopt;
  return Merge{ranks_[static_cast<std::size_t>(token)], token};
}

}  // namespace sluice::tokenizer
