#include "core/tokenizer/character_bpe.h"

#include <algorithm>
#include <string>

#include "core/text/utf8.h"

namespace sluice::tokenizer {

std::optional<CharacterTraits> find_character_traits(std::string_view pre) {
  if (pre == "gemma4" || pre == "granite-embed-multi-311m") return CharacterTraits{true};
  if (pre == "mmbert") return CharacterTraits{false, true, true};
  if (pre == "sarvam-moe") return CharacterTraits{false, false};
  return std::nullopt;
}

CharacterTraits character_traits(std::string_view pre) {
  return find_character_traits(pre).value_or(CharacterTraits{true});
}

CharacterBpe::CharacterBpe(const Vocabulary& vocabulary)
    : VocabularyTokenizer(vocabulary),
      traits_(character_traits(vocabulary.pre)),
      merges_(pieces(), vocabulary.merges.size()) {
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
    const std::string_view line = text.substr(0, line_end);
    text.remove_prefix(line.size());
    const bool is_taken = is_break && traits_.takes_breaks;
    if (const Token token = is_taken ? pieces().find(line) : -1; token >= 0) {
      out.push_back(token);
    } else if (is_break) {
      encode_word(line, merger, out);
    } else {
      encode_line(line, merger, out);
    }
  }
}

void CharacterBpe::encode_line(std::string_view line, Merger& merger,
                               std::vector<Token>& out) const {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, word_bytes(line));
    if (traits_.marks_words && word[0] != ' ') {
      encode_word(' ' + std::string(word), merger, out);
    } else {
      encode_word(word, merger, out);
    }
    line.remove_prefix(word.size());
  }
}

// Of the first word, which is merged without what follows.
std::size_t CharacterBpe::word_bytes(std::string_view line) const {
  if (traits_.marks_words) return std::min(line.find(' ', 1), line.size());
  return merges_.spaces_start_symbols() ? first_word_bytes(line) : line.size();
}

bool CharacterBpe::may_cut(std::string_view text, std::size_t at) const {
  const bool is_break = text[at] == '\n', is_behind_break = text[at - 1] == '\n';
  if (is_break || is_behind_break) return is_break != is_behind_break;
  if (traits_.marks_words) return text[at] == ' ';
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
