// JSON out of texts that nobody has checked: the answer of a model, or the arguments of a call that
// a client repeats.
//
// Values are copied, compared and written by recursion, and objects look their members up one by
// one. So a text that is nested deeply, has very many values, or very many members in one object
// counts as no JSON.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace sluice::chat {

inline constexpr std::size_t json_depth_max = 64;
inline constexpr std::size_t json_members_max = 4096;  // of one object
inline constexpr std::size_t json_values_max = std::size_t{1} << 16;

// How a piece of JSON, or of a call in Python's syntax, is cut out of a text.
struct Extent {
  std::size_t bytes = 0;   // up to the bracket that closes the first one, or up to where it fails
  std::size_t values = 0;  // at most so many
  bool is_closed = false;  // the bracket closes, within the limits
};

// Finds the end of the brackets that `text` begins with. Brackets in strings do not count; strings
// stand between quotes, or, if `with_apostrophes`, also between apostrophes. Stops at a `<` outside
// of strings, which neither JSON nor literals of Python have.
Extent bracket_extent(std::string_view text, bool with_apostrophes = false);

// The member of an object; null when there is none, or when it is no object.
const nlohmann::ordered_json* json_member(const nlohmann::ordered_json& object,
                                          std::string_view name);

// The value that the whole text is; nothing when it is no JSON, or beyond a limit. `values_left`,
// if given, is lowered by the number of values, and a text with more is refused too.
std::optional<nlohmann::ordered_json> parse_bounded(std::string_view text,
                                                    std::size_t* values_left = nullptr);

}  // namespace sluice::chat
