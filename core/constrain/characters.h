// Unicode characters, as GBNF and patterns write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/constrain/grammar_builder.h"

namespace sluice::constrain {

inline constexpr char32_t last_character = 0x10FFFF;

// The character at the front of `text`, which is removed; nothing when `text` is empty or does not
// begin with valid UTF-8.
std::optional<char32_t> take_character(std::string_view& text);

bool is_surrogate(char32_t character);

using Ranges = std::vector<CharacterRange>;

// In ascending order, without overlaps.
Ranges sorted(Ranges ranges);
// All characters that are not in `ranges`, which need not be sorted.
Ranges complement(Ranges ranges);
// What is in both.
Ranges intersection(const Ranges& a, const Ranges& b);
bool contains(const Ranges& ranges, char32_t character);

// The value of exactly `digits` hexadecimal digits at the front of `text`, which are removed.
std::optional<char32_t> take_hexadecimal(std::string_view& text, unsigned digits);

}  // namespace sluice::constrain
