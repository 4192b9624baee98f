// WordPiece (tokenizer.ggml.model "bert"; Wu et al. 2016, arXiv:1609.08144): a text is cut into
// words, and each word into the longest pieces of the vocabulary, from its beginning on. A word
// that cannot be cut so becomes the unknown token. Beforehand control characters are dropped, and,
// as the file says, accents, and capitals made small. Decoding cannot bring these back.
//
// Vocabularies write U+2581 before the piece that begins a word, and nothing before the others.
#pragma once

#include <cstdint>
#include <string>

#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

class WordPieces final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified. Throws ModelError when it has no unknown token.
  explicit WordPieces(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  bool may_cut(std::string_view text, std::size_t at) const override;
  void encode_word(std::string_view word, std::vector<Token>& out) const;

  bool makes_lowercase_, strips_accents_;
  std::size_t piece_bytes_max_ = 1;
};

}  // namespace sluice::tokenizer
