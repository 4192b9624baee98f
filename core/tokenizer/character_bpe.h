// BPE on characters (tokenizer.ggml.model "gemma4"). The text is cut into lines only. Within a
// line, characters are merged in the order of the merge list, even across words if the list has
// such merges. Characters that are not in the vocabulary become byte tokens. As in Gemma 4's
// tokenizer.json, spaces are written as U+2581; see sentencepiece_bpe.h about that.
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
  bool may_cut(std::string_view text, std::size_t at) const override;
  void encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const;

  MergeTable merges_;
};

}  // namespace sluice::tokenizer
