// Byte-level BPE (tokenizer.ggml.model "gpt2"): a pre-tokenizer cuts the text into words, and
// within a word bytes are merged in the order of the merge list. Radford et al. 2019 (GPT-2).
#pragma once

#include <array>
#include <optional>

#include "core/tokenizer/merge.h"
#include "core/tokenizer/pretokenizer.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

// The merge list as a hash table from pairs of symbols.
class MergeTable {
 public:
  // Room for `count` merges.
  explicit MergeTable(std::size_t count);

  // The first merge of a pair is the one that counts. Symbols are not negative.
  void add(std::int32_t left, std::int32_t right, Merge merge);
  std::optional<Merge> find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::int32_t left = -1;  // -1: free
    std::int32_t right = -1;
    Merge merge;
  };
  std::size_t slot_of(std::int32_t left, std::int32_t right) const;

  std::vector<Slot> slots_;  // linear probing; a power of two of them
};

class ByteBpe final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified.
  explicit ByteBpe(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  void encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const;

  Pretokenizer pretokenizer_;
  bool ignore_merges_;
  MergeTable merges_;
  // The symbol of each byte. Symbols are token ids, and from vocabulary_size() on stand for strings
  // that occur in merges but are no tokens.
  std::array<std::int32_t, 256> byte_symbols_;
};

}  // namespace sluice::tokenizer
