// BPE on characters (tokenizer.ggml.model "gemma4"): no pre-tokenizer but for lines, and within a
// line characters are merged in the order of the merge list, across words too where that has such
// merges. What is not in the vocabulary becomes byte tokens. Gemma 4's tokenizer.json: spaces are
// written as U+2581, of which holds what sentencepiece_bpe.h says.
#pragma once

#include "core/tokenizer/merge_table.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

class CharacterBpe final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified.
  explicit CharacterBpe(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  void encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const;

  MergeTable merges_;
};

}  // namespace sluice::tokenizer
