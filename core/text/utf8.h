// UTF-8: where characters begin and end, which bytes belong to none, and code points.
//
// Valid means what Unicode calls well-formed (3.9, table 3-7): no overlong forms, no surrogates,
// nothing above U+10FFFF. That is also what PCRE2 asks of its subjects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::utf8 {

inline constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD, for what is not valid

// What the first byte says of a character: how many bytes it has, 0 when no character begins with
// this byte, and the range of its second byte, which is where overlong forms, surrogates and values
// that are too large show.
struct Lead {
  std::uint8_t bytes;
  std::uint8_t second_min;
  std::uint8_t second_max;
};
Lead lead_of(char first);

// Is this a byte of a character after its first one?
constexpr bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// Bytes of the valid character at the front of `text`; 0 when there is none (`text` is empty or
// starts with a byte that is not the start of a complete, valid character).
std::size_t character_bytes(std::string_view text);

// Bytes of the longest front of `text` that is valid throughout.
std::size_t valid_prefix(std::string_view text);

// Bytes of the longest front of `text` in which no valid character starts.
std::size_t invalid_prefix(std::string_view text);

// The last place at or before `at` where no character is cut in two; `at` when it is the end.
std::size_t character_start(std::string_view text, std::size_t at);

// The code point of the valid character that `text` begins with.
char32_t code_point(std::string_view text);

// The bytes of a code point up to U+10FFFF that is no surrogate.
std::string encode(char32_t code_point);

}  // namespace sluice::utf8
