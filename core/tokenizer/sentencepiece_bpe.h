// SentencePiece's BPE (tokenizer.ggml.model "llama"): characters are merged into the tokens with
// the highest scores; what is not in the vocabulary becomes byte tokens. Kudo and Richardson 2018,
// https://arxiv.org/abs/1808.06226
//
// SentencePiece writes a space as U+2581 and so cannot tell the two apart. Here a U+2581 in a text
// stays one: it is encoded with byte tokens.
#pragma once

#include <optional>

#include "core/tokenizer/merge.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

class SentencePieceBpe final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified.
  explicit SentencePieceBpe(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  bool may_cut(std::string_view text, std::size_t at) const override;
  void encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const;
  std::optional<Merge> find_merge(std::string_view word, const Symbol& left,
                                  const Symbol& right) const;

  std::vector<std::uint32_t> ranks_;  // of each token; lower for higher scores
};

}  // namespace sluice::tokenizer
