// SentencePiece's unigram model (tokenizer.ggml.model "t5"; Kudo 2018, arXiv:1804.10959): of all
// ways to cut a text into tokens the one with the greatest sum of scores, found as by Viterbi.
// Characters that are no token become the unknown token, or byte tokens where there are some; a run
// of them becomes one.
//
// Beforehand characters are replaced as the file says, and white space is brought to one space in
// front of each word. Decoding cannot bring these back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/character_map.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

class Unigram final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified. Throws ModelError when it has no unknown token, or its map of
  // characters is malformed.
  explicit Unigram(const Vocabulary& vocabulary);

 private:
  struct Best;

  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  bool may_cut(std::string_view text, std::size_t at) const override;

  std::string normalise(std::string_view text, bool after_special) const;
  void encode_word(std::string_view word, std::vector<Best>& best, std::vector<Token>& out) const;
  void sort_pieces(const Vocabulary& vocabulary);
  template <typename Visit>
  void for_each_front(std::string_view text, const Visit& visit) const;

  CharacterMap map_;
  bool merges_spaces_;
  bool spaces_start_pieces_ = true;  // and a space is one: each word then has tokens of its own
  std::vector<Token> sorted_;        // tokens that text can become, by their bytes
  std::array<std::uint32_t, 257> first_of_{};  // in sorted_, of those that begin with each byte
  std::vector<float> scores_;                  // of each token
  double unknown_score_ = 0;
};

}  // namespace sluice::tokenizer
