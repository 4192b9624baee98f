#include "core/sampling/text_stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace sluice::sampling {
void Utf8Assembler::begin(char byte, std::string& text) {
  const utf8::Lead lead = utf8::lead_of(byte);
  if (lead.bytes == 0) {
    text += utf8::replacement;
  } else if (lead.bytes == 1) {
    text += byte;
  } else {
    partial_ = byte;
    lead_ = lead;
  }
}

// Does the unfinished character go on with this byte?
bool Utf8Assembler::goes_on(char byte) const {
  if (partial_.size() > 1) return utf8::is_continuation(byte);
  const auto value = static_cast<unsigned char>(byte);
  return lead_.second_min <= value && value <= lead_.second_max;
}

void Utf8Assembler::push(std::string_view bytes, std::string& text) {
  for (const char byte : bytes) {
    if (!partial_.empty() && goes_on(byte)) {
      partial_ += byte;
      if (partial_.size() == lead_.bytes) text += std::exchange(partial_, {});
    } else {
      finish(text);
      begin(byte, text);
    }
  }
}

void Utf8Assembler::finish(std::string& text) {
  if (partial_.empty()) return;
  text += utf8::replacement;
  partial_.clear();
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
    if (utf8::valid_prefix(stop) != stop.size()) throw UsageError("a stop text is not valid UTF-8");
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

}  // namespace sluice::sampling
