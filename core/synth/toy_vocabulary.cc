#include "core/synth/toy_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace sluice::synth {
namespace {

// SentencePiece's mark for a space.
constexpr std::string_view space = "\xE2\x96\x81";

enum TokenType : std::int32_t { normal = 1, unknown = 2, control = 3, byte = 6 };

// Word `index` of the enumeration of all sequences of syllables, the shorter first. All its
// beginnings come before it, so merging from the left always arrives at it.
std::string word(std::size_t index) {
  constexpr std::string_view consonants = "tnsrldmkpbvghf";
  constexpr std::string_view vowels = "aeiou";
  constexpr std::size_t syllables = consonants.size() * vowels.size();
  std::string text;
  for (++index; index > 0; index = (index - 1) / syllables) {
    const std::size_t syllable = (index - 1) % syllables;
    text.insert(0, {consonants[syllable / vowels.size()], vowels[syllable % vowels.size()]});
  }
  return text;
}

// Fills the vocabulary up with the space, the printable characters, and words with and without a
// space in front. `score_of` gives the score of an id.
template <typename ScoreOf>
void add_words(std::size_t size, const ScoreOf& score_of, Vocabulary& vocabulary) {
  const auto add = [&](std::string token) {
    if (vocabulary.tokens.size() >= size) return;
    vocabulary.scores.push_back(score_of(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.types.push_back(normal);
  };
  add(std::string(space));
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  for (std::size_t i = 0; vocabulary.tokens.size() < size; ++i) {
    const std::string text = word(i / 2);
    add(i % 2 == 0 ? text : std::string(space) + text);
  }
}

}  // namespace

Vocabulary toy_vocabulary(std::size_t size) {
  Vocabulary vocabulary;
  const auto add = [&](std::string token, TokenType type, float score) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.types.push_back(type);
    vocabulary.scores.push_back(score);
  };
  add("<unk>", unknown, 0);
  add("<s>", control, 0);
  add("</s>", control, 0);
  for (unsigned b = 0; b < 256; ++b) add(fmt::format("<0x{:02X}>", b), byte, 0);

  add_words(
      size, [](std::size_t id) { return -static_cast<float>(id); }, vocabulary);
  return vocabulary;
}

// As logarithms of a likelihood that falls with the place in the list.
Vocabulary toy_unigram(std::size_t size) {
  Vocabulary vocabulary;
  for (const char* mark : {"<s>", "<pad>", "</s>", "<unk>"}) {
    vocabulary.tokens.emplace_back(mark);
    vocabulary.types.push_back(vocabulary.tokens.size() == 4 ? unknown : control);
    vocabulary.scores.push_back(0);
  }
  add_words(
      size, [](std::size_t id) { return -std::log(static_cast<float>(id)); }, vocabulary);
  return vocabulary;
}

Vocabulary toy_word_pieces(std::size_t size) {
  Vocabulary vocabulary;
  const auto add = [&](std::string token, TokenType type) {
    if (vocabulary.tokens.size() == size) return;
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.types.push_back(type);
  };
  for (const char* mark : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) add(mark, control);
  for (char c = '!'; c <= '~'; ++c) {
    if (c >= 'A' && c <= 'Z') continue;  // texts are made lower case
    add(std::string(space) + c, normal);
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) add(std::string(1, c), normal);
  }
  for (std::size_t i = 0; vocabulary.tokens.size() < size; ++i) {
    add(std::string(space) + word(i), normal);
    add(word(i), normal);
  }
  return vocabulary;
}

}  // namespace sluice::synth
