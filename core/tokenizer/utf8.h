// UTF-8 as the tokenizers need it: where characters end, and which bytes belong to none.
//
// Valid means what Unicode calls well-formed: no overlong forms, no surrogates, nothing above
// U+10FFFF. That is also what PCRE2 asks of its subjects.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::tokenizer {

// Bytes of the valid character at the front of `text`; 0 when there is none (`text` is empty or
// starts with a byte that is not the start of a complete, valid character).
std::size_t utf8_character_bytes(std::string_view text);

// Bytes of the longest front of `text` that is valid throughout.
std::size_t utf8_valid_prefix(std::string_view text);

// Bytes of the longest front of `text` in which no valid character starts.
std::size_t utf8_invalid_prefix(std::string_view text);

}  // namespace sluice::tokenizer
