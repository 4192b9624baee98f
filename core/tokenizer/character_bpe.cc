#include "core/tokenizer/character_bpe.h"

#include <algorithm>
#include <string>

#include "core/text/utf8.h"

namespace sluice::tokenizer {

CharacterBpe::CharacterBpe(const Vocabulary& vocabulary)
    : VocabularyTokenizer(vocabulary), merges_(pieces(), vocabulary.merges.size()) {
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const MergeParts parts = split_merge(vocabulary.merges[i]).value();
    merges_.add(with_spaces(parts.left), with_spaces(parts.right), static_cast<std::uint32_t>(i));
  }
}

void CharacterBpe::encode_fragment(std::string_view text, bool /*after_special*/,
                                   std::vector<Token>& out) const {
  Merger merger;
  while (!text.empty()) {
    const bool is_break = text[0] == '\n';
    const std::size_t line_end = is_break ? text.find_first_not_of('\n') : text.find('\n');
    std::string_view rest = text.substr(0, line_end);
    text.remove_prefix(rest.size());
    // A run of line breaks that is a token becomes that token, whatever the merges say.
    if (const Token token = is_break ? pieces().find(rest) : -1; token >= 0) {
      out.push_back(token);
      continue;
    }
    while (!rest.empty()) {
      const std::size_t bytes =
          merges_.spaces_start_symbols() ? first_word_bytes(rest) : rest.size();
      encode_word(rest.substr(0, bytes), merger, out);
      rest.remove_prefix(bytes);
    }
  }
}

bool CharacterBpe::may_cut(std::string_view text, std::size_t at) const {
  const bool is_break = text[at] == '\n', is_behind_break = text[at - 1] == '\n';
  if (is_break || is_behind_break) return is_break != is_behind_break;
  return !utf8::is_continuation(text[at]) && !merges_.joints().has(text[at - 1], text[at]);
}

void CharacterBpe::encode_word(std::string_view word, Merger& merger,
                               std::vector<Token>& out) const {
  merger.clear();
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t bytes = std::max<std::size_t>(utf8::character_bytes(word.substr(i)), 1);
    const std::string_view character = word.substr(i, bytes);
    merger.push(bytes, character == space_mark ? -1 : merges_.find_symbol(character));
    i += bytes;
  }
  merger.merge(
      [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  append_symbols(word, merger, out);
}

}  // namespace sluice::tokenizer
