#include "core/engine/text_stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

// The first byte decides how many follow and narrows the range of the second, which excludes
// overlong forms, surrogates and what lies beyond U+10FFFF (Unicode 3.9, table 3-7).
void Utf8Assembler::begin(unsigned char byte, std::string& text) {
  next_lowest_ = 0x80;
  next_highest_ = 0xBF;
  if (byte < 0x80) {
    text += static_cast<char>(byte);
    return;
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    missing_ = 1;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    missing_ = 2;
    if (byte == 0xE0) next_lowest_ = 0xA0;
    if (byte == 0xED) next_highest_ = 0x9F;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    missing_ = 3;
    if (byte == 0xF0) next_lowest_ = 0x90;
    if (byte == 0xF4) next_highest_ = 0x8F;
  } else {
    text += replacement;
    return;
  }
  partial_ = static_cast<char>(byte);
}

void Utf8Assembler::push(std::string_view bytes, std::string& text) {
  for (const char character : bytes) {
    const auto byte = static_cast<unsigned char>(character);
    if (missing_ == 0) {
      begin(byte, text);
      continue;
    }
    if (byte < next_lowest_ || byte > next_highest_) {
      finish(text);
      begin(byte, text);
      continue;
    }
    partial_ += character;
    next_lowest_ = 0x80;
    next_highest_ = 0xBF;
    if (--missing_ == 0) text += std::exchange(partial_, {});
  }
}

void Utf8Assembler::finish(std::string& text) {
  if (missing_ == 0) return;
  text += replacement;
  partial_.clear();
  missing_ = 0;
}

TextStream::StopText::StopText(std::string stop)
    : text(std::move(stop)), fallback(text.size() + 1, 0) {
  std::size_t length = 0;
  for (std::size_t n = 1; n < text.size(); ++n) {
    while (length > 0 && text[n] != text[length]) length = fallback[length];
    if (text[n] == text[length]) ++length;
    fallback[n + 1] = length;
  }
}

void TextStream::StopText::advance(char byte) {
  while (matched > 0 && text[matched] != byte) matched = fallback[matched];
  if (text[matched] == byte) ++matched;
}

TextStream::TextStream(const std::vector<std::string>& stop_texts) {
  for (const std::string& stop : stop_texts) {
    if (stop.empty()) throw UsageError("a stop text is empty: give at least one character");
    if (tokenizer::utf8_valid_prefix(stop) != stop.size())
      throw UsageError("a stop text is not valid UTF-8");
    stop_texts_.emplace_back(stop);
  }
}

std::string_view TextStream::push(std::string_view piece) {
  if (stopped_) return {};
  std::string text;
  assembler_.push(piece, text);
  return take(std::move(text));
}

std::string_view TextStream::finish() {
  if (stopped_) return {};
  std::string text;
  assembler_.finish(text);
  take(std::move(text));
  if (!stopped_) ready_ += std::exchange(held_, {});
  return ready_;
}

// All text before the longest match, complete or not, is certain.
std::string_view TextStream::take(std::string&& text) {
  ready_ = std::exchange(held_, {});
  std::size_t longest = 0;
  for (const StopText& stop : stop_texts_) longest = std::max(longest, stop.matched);
  for (const char byte : text) {
    ready_ += byte;
    longest = 0;
    std::size_t complete = 0;
    for (StopText& stop : stop_texts_) {
      stop.advance(byte);
      longest = std::max(longest, stop.matched);
      if (stop.matched == stop.text.size()) complete = std::max(complete, stop.text.size());
    }
    if (complete > 0) {
      ready_.resize(ready_.size() - complete);
      stopped_ = true;
      return ready_;
    }
  }
  held_ = ready_.substr(ready_.size() - longest);
  ready_.resize(ready_.size() - longest);
  return ready_;
}

}  // namespace sluice::engine
