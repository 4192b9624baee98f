// The tokenizer of RWKV (tokenizer.ggml.model "rwkv", its "world" vocabulary): a text is cut into
// the longest tokens, from its beginning on, whatever its bytes are. There are no merges and no
// words.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::tokenizer {

class LongestPieces final : public VocabularyTokenizer {
 public:
  // `vocabulary` must be classified, and its texts be without escapes.
  explicit LongestPieces(const Vocabulary& vocabulary);

 private:
  void encode_fragment(std::string_view text, bool after_special,
                       std::vector<Token>& out) const override;
  bool may_cut(std::string_view text, std::size_t at) const override;

  std::array<std::size_t, 256> bytes_max_{};  // of the tokens that begin with a byte
};

}  // namespace sluice::tokenizer
