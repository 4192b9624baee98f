// Characters as in Python: a text is a sequence of code points; white space, case and printability
// are those of Unicode. Each byte that is not UTF-8 counts as a character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::chat::jinja {

// Bytes of the character at `position`, which is within the text; at least 1.
std::size_t character_bytes(std::string_view text, std::size_t position);
std::size_t count_characters(std::string_view text);
// Where the character `index` begins; the size of the text when it has fewer characters.
std::size_t offset_of_character(std::string_view text, std::size_t index);

// The code point at `position`; U+FFFFFFFF for a byte that is not UTF-8.
char32_t code_point(std::string_view text, std::size_t position);

bool is_space(char32_t c);       // str.isspace
bool is_line_end(char32_t c);    // what str.splitlines ends a line at
bool is_printable(char32_t c);   // what repr does not escape
bool is_alphabetic(char32_t c);  // str.isalpha
bool is_digit(char32_t c);       // str.isdigit, of decimal digits
bool is_upper(char32_t c);
bool is_lower(char32_t c);
std::string to_upper(char32_t c);  // may be several characters
std::string to_lower(char32_t c);

// The first place at or after `begin` where `part` occurs, or the last place, or npos. Linear.
std::size_t find_text(std::string_view text, std::string_view part, std::size_t begin = 0);
std::size_t find_last_text(std::string_view text, std::string_view part);

// Where the text begins, and where it ends, without the white space around it.
std::size_t skip_space(std::string_view text, std::size_t begin = 0);
std::size_t skip_space_back(std::string_view text, std::size_t begin = 0);

}  // namespace sluice::chat::jinja
