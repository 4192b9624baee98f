#include "core/tokenizer/text_encoder.h"

namespace sluice::tokenizer {

// Text in which no place to cut was found is tried again when there is twice as much, so that the
// time grows with the text's length.
void TextEncoder::push(std::string_view text, std::vector<Token>& out) {
  held_ += text;
  if (held_.size() < 2 * tried_bytes_) return;
  const std::size_t bytes = tokenizer_.encode_piece(held_, false, options_, position_, out);
  held_.erase(0, bytes);
  tried_bytes_ = bytes == 0 ? held_.size() : 0;
}

void TextEncoder::finish(std::vector<Token>& out) {
  tokenizer_.encode_piece(held_, true, options_, position_, out);
  held_ = {};
}

}  // namespace sluice::tokenizer
