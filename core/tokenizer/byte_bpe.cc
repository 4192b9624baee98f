#include "core/tokenizer/byte_bpe.h"

#include <string>

#include "core/text/byte_alphabet.h"

namespace sluice::tokenizer {

namespace {

PretokenizerTraits traits_of(const Vocabulary& vocabulary) {
  return find_pretokenizer(vocabulary.pre).value_or(PretokenizerTraits{});
}

}  // namespace

ByteBpe::ByteBpe(const Vocabulary& vocabulary)
    : VocabularyTokenizer(vocabulary),
      pretokenizer_(traits_of(vocabulary).kind),
      ignore_merges_(traits_of(vocabulary).ignore_merges),
      merges_(pieces(), vocabulary.merges.size()) {
  for (std::size_t byte = 0; byte < byte_symbols_.size(); ++byte) {
    byte_symbols_[byte] = merges_.symbol_of(std::string(1, static_cast<char>(byte)));
  }
  std::string left;
  std::string right;
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const MergeParts parts = split_merge(vocabulary.merges[i]).value();
    // Parts outside of the byte alphabet cannot come from any text.
    if (!text::decode_byte_alphabet(parts.left, left) ||
        !text::decode_byte_alphabet(parts.right, right)) {
      continue;
    }
    merges_.add(left, right, static_cast<std::uint32_t>(i));
  }
}

void ByteBpe::encode_fragment(std::string_view text, bool /*after_special*/,
                              std::vector<Token>& out) const {
  Merger merger;
  pretokenizer_.split(text, [&](std::string_view word) { encode_word(word, merger, out); });
}

void ByteBpe::encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const {
  if (ignore_merges_) {
    if (const Token token = pieces().find(word); token >= 0) {
      out.push_back(token);
      return;
    }
  }
  merger.clear();
  for (const char c : word) merger.push(1, byte_symbols_[static_cast<std::uint8_t>(c)]);
  merger.merge(
      [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  append_symbols(word, merger, out);
}

}  // namespace sluice::tokenizer
