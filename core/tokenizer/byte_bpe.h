// Byte-level BPE (tokenizer.ggml.model "gpt2"): a pre-tokenizer cuts the text into words, and
// within a word bytes are merged in the order of the merge list. Radford et al. 2019 (GPT-2).
#pragma once

#include <array>

#include "core/tokenizer/merge_table.h"
#include "core/tokenizer/pretokenizer.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

class ByteBpe final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified.
  explicit ByteBpe(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  bool may_cut(std::string_view text, std::size_t at) const override {
    return pretokenizer_.may_cut(text, at);
  }
  void encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const;

  Pretokenizer pretokenizer_;
  bool ignore_merges_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_symbols_;
};

}  // namespace sluice::tokenizer
