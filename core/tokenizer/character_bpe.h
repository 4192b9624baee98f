// BPE on characters (tokenizer.ggml.model "gemma4", or "gpt2" with some values of
// tokenizer.ggml.pre). The text is cut into lines only. Within a line, characters are merged in the
// order of the merge list, even across words if the list has such merges. Characters that are not
// in the vocabulary become byte tokens. As in Gemma 4's tokenizer.json, spaces are written as
// U+2581; see sentencepiece_bpe.h about that.
#pragma once

#include <optional>
#include <string_view>

#include "core/tokenizer/merge_table.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

// What a value of tokenizer.ggml.pre means.
struct CharacterTraits {
  bool needs_bos = false;    // whatever the file says
  bool takes_breaks = true;  // a run of line breaks that is a token becomes it without any merge
  bool marks_words = false;  // a word is merged alone; a line is read as if it began with a space
};

// Nothing when `pre` is none of a vocabulary of characters.
std::optional<CharacterTraits> find_character_traits(std::string_view pre);
// The same of a vocabulary of characters; those of Gemma 4 where `pre` does not tell.
CharacterTraits character_traits(std::string_view pre);

class CharacterBpe final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified.
  explicit CharacterBpe(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  bool may_cut(std::string_view text, std::size_t at) const override;
  void encode_line(std::string_view line, Merger& merger, std::vector<Token>& out) const;
  std::size_t word_bytes(std::string_view line) const;
  void encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const;

  CharacterTraits traits_;
  MergeTable merges_;
};

}  // namespace sluice::tokenizer
