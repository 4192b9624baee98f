// Encodes a text that comes in pieces of any size, into the tokens that the whole text has. Holds
// only what the text to come may still change: usually less than a piece.
//
// Used by one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::tokenizer {

class TextEncoder {
 public:
  // `tokenizer` must outlive the encoder.
  explicit TextEncoder(const Tokenizer& tokenizer, const EncodeOptions& options = {})
      : tokenizer_(tokenizer), options_(options) {}

  // Adds text, and appends the tokens that are certain now. Throws what Tokenizer::encode throws.
  void push(std::string_view text, std::vector<Token>& out);
  // Ends the text, and appends the rest of its tokens.
  void finish(std::vector<Token>& out);

  // Text that was added and has no tokens yet.
  std::size_t held_bytes() const { return held_.size(); }

 private:
  const Tokenizer& tokenizer_;
  EncodeOptions options_;
  EncodePosition position_;
  std::string held_;
  std::size_t tried_bytes_ = 0;  // so much was held when no place to cut was found
};

}  // namespace sluice::tokenizer
