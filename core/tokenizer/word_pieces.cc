#include "core/tokenizer/word_pieces.h"

#include <algorithm>
#include <array>

#include "core/text/utf8.h"
#include "core/tokenizer/character_folding.h"
#include "core/tokenizer/pattern.h"

namespace sluice::tokenizer {
namespace {

// Ideographs of the first BERT: blocks of characters, each of which is a word. (Its authors had
// 2B820 for the last but two; converters and engines have what stands here.)
constexpr std::array<std::array<char32_t, 2>, 8> ideographs = {{{0x4E00, 0x9FFF},
                                                                {0x3400, 0x4DBF},
                                                                {0x20000, 0x2A6DF},
                                                                {0x2A700, 0x2B73F},
                                                                {0x2B740, 0x2B81F},
                                                                {0x2B920, 0x2CEAF},
                                                                {0xF900, 0xFAFF},
                                                                {0x2F800, 0x2FA1F}}};

bool is_ideograph(char32_t c) {
  return std::ranges::any_of(ideographs,
                             [c](const auto& block) { return c >= block[0] && c <= block[1]; });
}

bool is_hangul(char32_t c) {
  return c >= 0xAC00 && c <= 0xD7A3;
}

// The run that a character may be in: the last one that begins at or before it.
template <typename Runs>
const auto* run_of(const Runs& runs, char32_t c) {
  const auto after =
      std::ranges::upper_bound(runs, c, {}, [](const auto& run) { return run.first; });
  return after == runs.begin() ? nullptr : &*(after - 1);
}

char32_t base_of(char32_t c) {
  const BaseRun* run = is_hangul(c) ? nullptr : run_of(base_runs, c);
  return run != nullptr && c - run->first < run->bases.size() ? run->bases[c - run->first] : c;
}

// Runs of capitals may interleave, so several are tried.
char32_t lower_of(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  const auto after = std::ranges::upper_bound(capital_runs, c, {}, &CapitalRun::first);
  for (auto run = after; run != capital_runs.begin() && after - run < 4;) {
    --run;
    const auto past = static_cast<int>(c - run->first);
    if (past % run->step == 0 && past / run->step < run->count) {
      return static_cast<char32_t>(static_cast<std::int64_t>(c) + run->added);
    }
  }
  return c;
}

enum class CharacterKind { letter, space, alone, dropped, mark };

// Kinds of characters that are not ASCII, by their Unicode categories.
CharacterKind kind_of(std::string_view character, Pattern::Scratch& scratch) {
  static const Pattern blanks(R"(^[\s\p{Z}])"), marks(R"(^\p{Mn})"), punctuation(R"(^\p{P})"),
      control(R"(^[\p{Cc}\p{Cf}\p{Co}\x{FFFD}])");
  if (blanks.find(character, 0, scratch)) return CharacterKind::space;
  if (control.find(character, 0, scratch)) return CharacterKind::dropped;
  if (marks.find(character, 0, scratch)) return CharacterKind::mark;
  return punctuation.find(character, 0, scratch) ? CharacterKind::alone : CharacterKind::letter;
}

CharacterKind kind_of(char32_t c, Pattern::Scratch& scratch) {
  if (c < 0x80) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) return CharacterKind::space;
    if (c < ' ' || c == 0x7F) return CharacterKind::dropped;
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_word ? CharacterKind::letter : CharacterKind::alone;
  }
  if (is_ideograph(c)) return CharacterKind::alone;
  if (is_hangul(c)) return CharacterKind::letter;
  return kind_of(utf8::encode(c), scratch);
}

}  // namespace

WordPieces::WordPieces(const Vocabulary& vocabulary)
    : VocabularyTokenizer(vocabulary),
      makes_lowercase_(vocabulary.makes_lowercase),
      strips_accents_(vocabulary.strips_accents) {
  if (!vocabulary.unknown) {
    throw vocabulary_error(vocabulary, "tokenizer.ggml.unknown_token_id",
                           "is missing, but words that are not in the vocabulary need it");
  }
  for (const std::string& piece : vocabulary.tokens) {
    piece_bytes_max_ = std::max(piece_bytes_max_, piece.size());
  }
}

void WordPieces::encode_fragment(std::string_view text, bool /*after_special*/,
                                 std::vector<Token>& out) const {
  Pattern::Scratch scratch;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) encode_word(word, out);
    word.clear();
  };
  while (!text.empty()) {
    const std::size_t bytes = utf8::character_bytes(text);
    if (bytes == 0) {  // not UTF-8: as if U+FFFD stood there, which is dropped
      text.remove_prefix(utf8::invalid_prefix(text));
      continue;
    }
    char32_t c = utf8::code_point(text);
    text.remove_prefix(bytes);
    if (strips_accents_) c = base_of(c);
    const CharacterKind kind = kind_of(c, scratch);
    if (kind == CharacterKind::dropped || (kind == CharacterKind::mark && strips_accents_)) {
      continue;
    }
    if (kind == CharacterKind::space || kind == CharacterKind::alone) end_word();
    if (kind == CharacterKind::space) continue;
    word += utf8::encode(makes_lowercase_ ? lower_of(c) : c);
    if (kind == CharacterKind::alone) end_word();
  }
  end_word();
}

// Pieces are told apart by the space in front of the first one of a word.
void WordPieces::encode_word(std::string_view word, std::vector<Token>& out) const {
  const std::size_t before = out.size();
  const std::string marked = " " + std::string(word);
  for (std::size_t at = 0; at < marked.size();) {
    std::size_t bytes = std::min(piece_bytes_max_, marked.size() - at);
    Token token = -1;
    for (; bytes > 0 && token < 0; --bytes) {
      token = pieces().find(std::string_view(marked).substr(at, bytes));
    }
    if (token < 0) {
      out.resize(before);
      out.push_back(unknown().value());
      return;
    }
    out.push_back(token);
    at += bytes + 1;
  }
}

bool WordPieces::may_cut(std::string_view text, std::size_t at) const {
  return text[at] == ' ' || text[at] == '\n';
}

}  // namespace sluice::tokenizer
