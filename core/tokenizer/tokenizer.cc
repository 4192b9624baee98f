#include "core/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/tokenizer/byte_bpe.h"
#include "core/tokenizer/character_bpe.h"
#include "core/tokenizer/longest_pieces.h"
#include "core/tokenizer/sentencepiece_bpe.h"
#include "core/tokenizer/unigram.h"
#include "core/tokenizer/vocabulary_tokenizer.h"
#include "core/tokenizer/word_pieces.h"

namespace sluice::tokenizer {

namespace {

// Symbols are counted in 32 bits, and a space in front may add one.
void check_size(std::size_t bytes) {
  if (bytes < std::numeric_limits<std::uint32_t>::max()) return;
  throw UsageError(fmt::format(
      "a text of {} bytes is too long to be tokenized at once: the limit is 4 GiB", bytes));
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_metadata(const gguf::Metadata& metadata) {
  return make_tokenizer(load_vocabulary(metadata));
}

std::size_t Tokenizer::encode_piece(std::string_view text, bool is_last,
                                    const EncodeOptions& options, EncodePosition& position,
                                    std::vector<Token>& out) const {
  if (!is_last) return 0;
  EncodeOptions rest = options;
  rest.add_bos = options.add_bos && position.is_at_start;
  const std::vector<Token> tokens = encode(text, rest);
  out.insert(out.end(), tokens.begin(), tokens.end());
  position = {.is_at_start = false, .is_behind_special = false};
  return text.size();
}

std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary) {
  check_vocabulary(vocabulary);
  classify_tokens(vocabulary);
  switch (vocabulary.kind) {
    case VocabularyKind::sentencepiece:
      return std::make_unique<SentencePieceBpe>(vocabulary);
    case VocabularyKind::byte_level:
      return std::make_unique<ByteBpe>(vocabulary);
    case VocabularyKind::character_level:
      return std::make_unique<CharacterBpe>(vocabulary);
    case VocabularyKind::word_pieces:
      return std::make_unique<WordPieces>(vocabulary);
    case VocabularyKind::longest_pieces:
      return std::make_unique<LongestPieces>(vocabulary);
    case VocabularyKind::unigram:
      return std::make_unique<Unigram>(vocabulary);
  }
  std::abort();
}

VocabularyTokenizer::VocabularyTokenizer(const Vocabulary& vocabulary)
    : pieces_(vocabulary),
      special_tokens_(vocabulary),
      types_(vocabulary.types),
      end_of_generation_(vocabulary.end_of_generation),
      source_(vocabulary.source),
      warnings_(vocabulary.warnings),
      bos_(vocabulary.bos),
      eos_(vocabulary.eos),
      unknown_(vocabulary.unknown),
      add_bos_(vocabulary.add_bos && vocabulary.bos.has_value()),
      add_space_prefix_(vocabulary.add_space_prefix &&
                        (vocabulary.kind == VocabularyKind::sentencepiece ||
                         vocabulary.kind == VocabularyKind::unigram)) {
  // WordPiece ends a text with its separator. The others end it with EOS, and have a separator in
  // pairs only. (In a pair both ends stand there, if the file asks for both: "</s></s>".)
  const std::optional<Token> eos = vocabulary.eos ? vocabulary.eos : vocabulary.separator;
  if (vocabulary.add_eos && eos) pair_end_.push_back(*eos);
  if (vocabulary.add_separator && vocabulary.separator) between_.push_back(*vocabulary.separator);
  text_end_ = vocabulary.kind == VocabularyKind::word_pieces ? between_ : pair_end_;
  for (int byte = 0; byte < 256; ++byte) {
    if (pieces_.byte_token(static_cast<std::uint8_t>(byte)) < 0) unknown_is_text_ = true;
  }
}

std::vector<Token> Tokenizer::encode_pair(std::string_view query, std::string_view text) const {
  std::vector<Token> tokens = encode(query, {.add_end = true});
  const std::vector<Token> behind = encode(text, {.add_bos = false, .add_end = true});
  tokens.insert(tokens.end(), behind.begin(), behind.end());
  return tokens;
}

std::vector<Token> VocabularyTokenizer::encode_pair(std::string_view query,
                                                    std::string_view text) const {
  std::vector<Token> tokens = encode(query, {});
  const std::vector<Token> behind = encode(text, {.add_bos = false});
  for (const std::vector<Token>& part : {pair_end_, between_, behind, pair_end_}) {
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

std::vector<Token> VocabularyTokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  std::vector<Token> tokens;
  EncodePosition position;
  encode_piece(text, true, options, position, tokens);
  if (options.add_end) tokens.insert(tokens.end(), text_end_.begin(), text_end_.end());
  return tokens;
}

// Only what begins within the reach of the special tokens from the end is uncertain: a special
// token that ends behind the piece may take its place. So the piece is cut where a fragment begins
// before that, or within an ordinary one.
std::size_t VocabularyTokenizer::encode_piece(std::string_view text, bool is_last,
                                              const EncodeOptions& options,
                                              EncodePosition& position,
                                              std::vector<Token>& out) const {
  check_size(text.size());
  if (position.is_at_start && options.add_bos && add_bos_) out.push_back(*bos_);
  position.is_at_start = false;
  const std::size_t reach = is_last ? 0 : special_tokens_.reach(options.parse_special);
  const std::size_t certain = text.size() - std::min(text.size(), reach);
  const std::vector<Fragment> fragments = special_tokens_.partition(text, options.parse_special);
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const Fragment& fragment = fragments[i];
    const bool is_whole =
        is_last || (i + 1 < fragments.size() && fragments[i + 1].begin <= certain);
    if (is_whole && fragment.token >= 0) {
      out.push_back(fragment.token);
      position.is_behind_special = true;
      continue;
    }
    if (!is_whole && fragment.token >= 0) return fragment.begin;
    std::string_view ordinary = text.substr(fragment.begin, fragment.end - fragment.begin);
    if (!is_whole) {
      ordinary =
          ordinary.substr(0, cut_before(ordinary, certain - std::min(certain, fragment.begin)));
      if (ordinary.empty()) return fragment.begin;
    }
    encode_fragment(ordinary, position.is_behind_special, out);
    position.is_behind_special = false;
    if (!is_whole) return fragment.begin + ordinary.size();
  }
  return text.size();
}

// The last place up to `end` where ordinary text can be cut; 0 if there is none.
std::size_t VocabularyTokenizer::cut_before(std::string_view text, std::size_t end) const {
  if (text.empty()) return 0;
  std::size_t at = std::min(end, text.size() - 1);
  while (at > 0 && !may_cut(text, at)) --at;
  return at;
}

std::vector<Token> VocabularyTokenizer::encode_parts(std::span<const TextPart> parts,
                                                     std::span<const Token> barred,
                                                     bool continues) const {
  std::vector<Token> tokens;
  std::string ordinary;  // text since the last token that was written out
  bool after_special = !continues;
  bool has_own_space = false;
  const auto flush = [&] {
    if (ordinary.empty()) return;
    check_size(ordinary.size());
    encode_fragment(ordinary, after_special && !has_own_space, tokens);
    ordinary.clear();
  };
  for (const TextPart& part : parts) {
    for (const Fragment& fragment : special_tokens_.partition(part.text, part.is_markup)) {
      const bool is_barred =
          !part.is_markup && std::binary_search(barred.begin(), barred.end(), fragment.token);
      if (fragment.token >= 0 && !is_barred) {
        flush();
        tokens.push_back(fragment.token);
        after_special = true;
        continue;
      }
      if (ordinary.empty()) has_own_space = part.is_markup && part.text[fragment.begin] == ' ';
      ordinary += part.text.substr(fragment.begin, fragment.end - fragment.begin);
    }
  }
  flush();
  return tokens;
}

std::string_view VocabularyTokenizer::piece(Token token, bool render_special) const {
  check(token);
  const TokenType type = types_[static_cast<std::size_t>(token)];
  const bool shown = render_special || is_text(token) || type == TokenType::user_defined;
  return shown ? pieces_.piece(token) : std::string_view();
}

// Removes the spaces that encode puts in front of text: at the start and behind each token that was
// written out.
std::string VocabularyTokenizer::decode(std::span<const Token> tokens, bool render_special) const {
  std::string text;
  bool after_special = true;
  for (const Token token : tokens) {
    std::string_view bytes = piece(token, render_special);
    if (after_special && add_space_prefix_ && is_text(token) && bytes.starts_with(' ')) {
      bytes.remove_prefix(1);
    }
    text += bytes;
    after_special = !is_text(token) && !(unknown_is_text_ && token == unknown_);
  }
  return text;
}

bool VocabularyTokenizer::is_ordinary(Token token) const {
  check(token);
  return is_text(token);
}

bool VocabularyTokenizer::is_end_of_generation(Token token) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), token);
}

void VocabularyTokenizer::append_symbols(std::string_view word, const Merger& merger,
                                         std::vector<Token>& out) const {
  merger.for_each([&](const Symbol& symbol) {
    if (symbol.id >= 0 && static_cast<std::size_t>(symbol.id) < pieces_.size()) {
      out.push_back(symbol.id);
    } else {
      append_bytes(word.substr(symbol.begin, symbol.bytes), out);
    }
  });
}

void VocabularyTokenizer::append_bytes(std::string_view bytes, std::vector<Token>& out) const {
  const std::size_t before = out.size();
  for (const char c : bytes) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (const Token token = pieces_.byte_token(byte); token >= 0) {
      out.push_back(token);
      continue;
    }
    if (!unknown_) {
      throw ModelError(
          fmt::format("{}: key 'tokenizer.ggml.tokens': the text has the byte 0x{:02X}, for which "
                      "there is no token, nor is there one for unknown text",
                      source_, byte));
    }
    out.resize(before);
    out.push_back(*unknown_);
    return;
  }
}

// Whether ordinary text can become this token.
bool VocabularyTokenizer::is_text(Token token) const {
  const TokenType type = types_[static_cast<std::size_t>(token)];
  return type == TokenType::normal || type == TokenType::byte;
}

void VocabularyTokenizer::check(Token token) const {
  if (token >= 0 && static_cast<std::size_t>(token) < pieces_.size()) return;
  throw std::out_of_range(
      fmt::format("token {} is outside of the vocabulary of {} tokens", token, pieces_.size()));
}

}  // namespace sluice::tokenizer
