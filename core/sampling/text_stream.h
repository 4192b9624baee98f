// Turns the pieces of tokens into text that can be shown while it is generated.
//
// A token may end in the middle of a UTF-8 character, and a stop text may be spread over several
// tokens. The stream holds back as little as possible: the bytes of an unfinished character, and
// text that may be the beginning of a stop text. Its output is always whole characters and valid
// UTF-8, however the text was cut into pieces. Bytes that are not UTF-8 become U+FFFD, one for each
// maximal part of a character (the practice of the Unicode standard, section 3.9, and of the WHATWG
// decoder).
//
// Stop texts: the text ends before the stop text that is complete first. If several are complete at
// the same character, the longest counts.
//
// Threads: a stream belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/utf8.h"

namespace sluice::sampling {

// Takes bytes and returns whole characters.
class Utf8Assembler {
 public:
  // Appends the characters that `bytes` completes to `text`.
  void push(std::string_view bytes, std::string& text);
  // Ends the text: an unfinished character becomes U+FFFD.
  void finish(std::string& text);

 private:
  void begin(char byte, std::string& text);
  bool goes_on(char byte) const;

  std::string partial_;  // the bytes of an unfinished character
  utf8::Lead lead_{};    // what its first byte says of it
};

class TextStream {
 public:
  // Throws UsageError when a stop text is empty or not UTF-8.
  explicit TextStream(const std::vector<std::string>& stop_texts = {});

  // Takes the bytes of the next token and returns the text that is now certain; valid until the
  // next call. Returns nothing after a stop text was found.
  std::string_view push(std::string_view piece);

  // Ends the generation: returns the text that was held back.
  std::string_view finish();

  bool stopped() const { return stopped_; }  // a stop text was found

 private:
  // Knuth-Morris-Pratt: `fallback[n]` is the length of the longest proper prefix of the stop text
  // that is also a suffix of its first n bytes.
  struct StopText {
    std::string text;
    std::vector<std::size_t> fallback;
    std::size_t matched = 0;  // bytes of the stop text that the stream ends with

    explicit StopText(std::string stop);
    void advance(char byte);
  };

  std::string_view take(std::string&& text);

  Utf8Assembler assembler_;
  std::vector<StopText> stop_texts_;
  std::string held_;   // may be the beginning of a stop text
  std::string ready_;  // what the last call returned
  bool stopped_ = false;
};

}  // namespace sluice::sampling
