// Regular expressions of JSON Schema (`pattern`), as expressions over the text of a JSON string.
//
// A part of ECMA-262: alternatives, groups, classes, . \d \w \s \D \W \S, quantifiers, and the
// anchors ^ and $ at the ends of alternatives. Refused by name: look-around, back references, word
// borders, \p, flags, and anchors elsewhere. Where engines differ (what \D, \W, \S, and . match
// outside of ASCII, and which white space is) only what all of them match is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/constrain/json_text.h"

namespace sluice::constrain {

inline constexpr std::size_t pattern_bytes_max = 8192;
inline constexpr unsigned pattern_depth_max = 64;

// A string, with its quotation marks, that the pattern matches and that has min to max characters;
// nothing when the pattern cannot be combined with these lengths. Throws GrammarError when it is
// malformed or not supported.
std::optional<Expression> pattern_string(JsonText& json, std::string_view pattern,
                                         std::uint32_t min, std::uint32_t max);

// How many characters a text has at most that the pattern matches; the greatest number where there
// is no limit. Throws as pattern_string() does.
std::uint32_t longest_text(std::string_view pattern);

}  // namespace sluice::constrain
