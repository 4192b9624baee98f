#include "core/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>

#include "core/text/utf8.h"

namespace sluice::tokenizer {
namespace {

// How much less the unknown token counts than the worst other one.
constexpr double unknown_penalty = 10;

constexpr Token no_token = -1;

}  // namespace

// The best way to cut a word before a place.
struct Unigram::Best {
  double score = -std::numeric_limits<double>::infinity();
  Token last = no_token;    // the token that ends there; no_token: an unknown character
  std::uint32_t bytes = 0;  // of it
};

Unigram::Unigram(const Vocabulary& vocabulary)
    : VocabularyTokenizer(vocabulary),
      merges_spaces_(vocabulary.merges_spaces),
      scores_(vocabulary.scores) {
  if (!vocabulary.unknown) {
    throw vocabulary_error(vocabulary, "tokenizer.ggml.unknown_token_id",
                           "is missing, but characters that are not in the vocabulary need it");
  }
  try {
    map_ = CharacterMap(vocabulary.character_map);
  } catch (const std::invalid_argument& error) {
    throw vocabulary_error(vocabulary, "tokenizer.ggml.precompiled_charsmap", error.what());
  }
  float worst = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    if (vocabulary.types[i] == TokenType::normal) worst = std::min(worst, scores_[i]);
    if (vocabulary.types[i] == TokenType::user_defined) scores_[i] = 0;
  }
  unknown_score_ = double{worst} - unknown_penalty;
  sort_pieces(vocabulary);
}

void Unigram::sort_pieces(const Vocabulary& vocabulary) {
  bool has_space = false;
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const auto token = static_cast<Token>(i);
    const std::string_view piece = pieces().piece(token);
    const bool is_text =
        type == TokenType::normal || type == TokenType::unused || type == TokenType::user_defined;
    if (!is_text || piece.empty()) continue;
    sorted_.push_back(token);
    has_space |= piece == " ";
    spaces_start_pieces_ &= first_word_bytes(piece) == piece.size();
  }
  // A space without a token would become one unknown token with what is before it.
  spaces_start_pieces_ &= has_space;
  const auto piece_of = [&](Token token) { return pieces().piece(token); };
  std::ranges::stable_sort(sorted_, {}, piece_of);
  // Of tokens with the same bytes the first one counts.
  const auto are_twins = [&](Token a, Token b) { return piece_of(a) == piece_of(b); };
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end(), are_twins), sorted_.end());
  for (const Token token : sorted_) {
    ++first_of_[std::size_t{static_cast<std::uint8_t>(piece_of(token).front())} + 1];
  }
  for (std::size_t i = 1; i < first_of_.size(); ++i) first_of_[i] += first_of_[i - 1];
}

void Unigram::encode_fragment(std::string_view text, bool after_special,
                              std::vector<Token>& out) const {
  const std::string normalised = normalise(text, after_special);
  std::vector<Best> best;  // for one word after another
  for (std::string_view rest = normalised; !rest.empty();) {
    const std::size_t bytes = spaces_start_pieces_ ? first_word_bytes(rest) : rest.size();
    encode_word(rest.substr(0, bytes), best, out);
    rest.remove_prefix(bytes);
  }
}

std::string Unigram::normalise(std::string_view text, bool after_special) const {
  std::string out;
  out.reserve(text.size() + 1);
  bool in_word = !after_special;
  bool needs_prefix = after_special && add_space_prefix();
  const auto begin_word = [&] {
    if (!in_word && (merges_spaces_ || needs_prefix)) out += ' ';
    in_word = true;
    needs_prefix = false;
  };
  const auto append = [&](std::string_view part) {
    for (const char c : part) {
      if (c != ' ') begin_word();
      if (c == ' ') in_word = false;
      if (c != ' ' || !merges_spaces_) out += c;
    }
  };
  while (!text.empty()) {
    std::size_t bytes = utf8::character_bytes(text);
    if (const CharacterMap::Replacement found = map_.find(text); found.source_bytes > 0) {
      bytes = found.source_bytes;
      append(found.text);
    } else if (bytes == 0) {
      bytes = 1;
      append(utf8::replacement);
    } else if (text.substr(0, bytes) == space_mark) {
      begin_word();
      out += ' ';
    } else {
      append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
  return out;
}

// Calls visit(token, bytes) for each token that `text` begins with, the shortest first: byte by
// byte those are left in `sorted_` that agree so far.
template <typename Visit>
void Unigram::for_each_front(std::string_view text, const Visit& visit) const {
  const auto first = static_cast<std::uint8_t>(text.front());
  auto begin = sorted_.begin() + first_of_[first];
  auto end = sorted_.begin() + first_of_[std::size_t{first} + 1];
  for (std::size_t at = 0; at < text.size() && begin != end; ++at) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    const auto byte_of = [&](Token token) {
      return static_cast<std::uint8_t>(pieces().piece(token)[at]);
    };
    const bool all_agree = byte_of(*begin) == byte && byte_of(*(end - 1)) == byte;
    if (!all_agree) {
      begin = std::ranges::lower_bound(begin, end, byte, {}, byte_of);
      end = std::ranges::upper_bound(begin, end, byte, {}, byte_of);
    }
    // One that ends here is in front.
    if (begin != end && pieces().piece(*begin).size() == at + 1) visit(*begin++, at + 1);
  }
}

void Unigram::encode_word(std::string_view word, std::vector<Best>& best,
                          std::vector<Token>& out) const {
  best.assign(word.size() + 1, {});
  best[0].score = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view rest = word.substr(at);
    const std::size_t character = std::max<std::size_t>(utf8::character_bytes(rest), 1);
    const auto offer = [&](Token token, std::size_t bytes, double score) {
      Best& end = best[at + bytes];
      const double sum = best[at].score + score;
      if (sum > end.score) end = {sum, token, static_cast<std::uint32_t>(bytes)};
    };
    bool is_known = false;
    for_each_front(rest, [&](Token token, std::size_t bytes) {
      is_known |= bytes == character;
      offer(token, bytes, scores_[static_cast<std::size_t>(token)]);
    });
    if (!is_known) offer(no_token, character, unknown_score_);
    at += character;
  }
  // From the end back; a run of unknown characters at once.
  const std::size_t before = out.size();
  for (std::size_t end = word.size(); end > 0;) {
    std::size_t begin = end;
    while (begin > 0 && best[begin].last == no_token) begin -= best[begin].bytes;
    if (begin < end) {
      const std::size_t first = out.size();
      append_bytes(word.substr(begin, end - begin), out);
      std::ranges::reverse(std::span(out).subspan(first));
    } else {
      out.push_back(best[end].last);
      begin -= best[end].bytes;
    }
    end = begin;
  }
  std::ranges::reverse(std::span(out).subspan(before));
}

// A source that begins before the place may not go on behind it.
bool Unigram::may_cut(std::string_view text, std::size_t at) const {
  if (text[at] != ' ' || !merges_spaces_ || !spaces_start_pieces_) return false;
  const std::size_t most = std::min(at, CharacterMap::source_bytes_max);
  for (std::size_t before = 1; before <= most; ++before) {
    if (map_.reach(text.substr(at - before)) > before) return false;
  }
  return true;
}

}  // namespace sluice::tokenizer
