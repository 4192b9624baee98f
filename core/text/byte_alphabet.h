// The characters that byte-level vocabularies write bytes with (GPT-2, 2019): printable ones of
// Latin-1 stand for themselves; the other 68 bytes, in order, are the characters from U+0100.
#pragma once

#include <string>
#include <string_view>

namespace sluice::text {

// A character for each byte.
std::string encode_byte_alphabet(std::string_view bytes);

// The bytes that the characters stand for. False, with `bytes` unspecified, when one of them stands
// for none.
bool decode_byte_alphabet(std::string_view text, std::string& bytes);

}  // namespace sluice::text
