// The formats of texts that a JSON Schema may name, as regular expressions (pattern.h). By draft
// 2020-12 a format is a remark, so one that is not known here forbids nothing.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::constrain {

// The pattern of a part of what the format allows, enough to write any usual value: of the largest
// part in which no text has more than `max` characters, or else of the smallest. Nothing for a
// format that is not known, or that says nothing of a text.
std::optional<std::string> pattern_of_format(std::string_view format, std::uint32_t max);

// Whether a format is one of OpenAPI's that no text has to have: it is for people, or of numbers.
bool is_hint(std::string_view format);

}  // namespace sluice::constrain
