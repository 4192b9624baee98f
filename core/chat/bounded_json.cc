#include "core/chat/bounded_json.h"

#include <array>
#include <string>
#include <utility>

#include "core/text/limited_json.h"

namespace sluice::chat {
namespace {

// The position behind the string that begins at `at`; npos when it does not end.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  return at < text.size() ? at + 1 : std::string_view::npos;
}

}  // namespace

Extent bracket_extent(std::string_view text, bool with_apostrophes) {
  struct Open {
    char close;
    std::size_t members;
  };
  std::array<Open, json_depth_max> open;
  std::size_t depth = 0;
  Extent extent;
  for (std::size_t at = 0; at < text.size();) {
    extent.bytes = at;
    const char c = text[at];
    if (c == '"' || (with_apostrophes && c == '\'')) {
      at = end_of_string(text, at);
      if (at == std::string_view::npos) break;
      continue;
    }
    ++at;
    if (c == '{' || c == '[' || c == '(') {
      if (depth == json_depth_max) return extent;
      open[depth++] = {c == '{' ? '}' : c == '[' ? ']' : ')', 1};
      ++extent.values;
    } else if (c == '}' || c == ']' || c == ')') {
      if (depth == 0 || open[depth - 1].close != c) return extent;
      if (--depth > 0) continue;
      extent.bytes = at;
      extent.is_closed = true;
      return extent;
    } else if (c == ',' || c == ':') {
      if (++extent.values > json_values_max || depth == 0) return extent;
      Open& around = open[depth - 1];
      if (c == ',' && around.close != ']' && ++around.members > json_members_max) return extent;
    } else if (c == '<') {
      return extent;
    }
  }
  extent.bytes = text.size();
  return extent;
}

const nlohmann::ordered_json* json_member(const nlohmann::ordered_json& object,
                                          std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(name));
  return found == object.end() ? nullptr : &*found;
}

std::optional<nlohmann::ordered_json> parse_bounded(std::string_view text,
                                                    std::size_t* values_left) {
  const JsonLimits limits{.what = "value",
                          .values_max = values_left == nullptr ? json_values_max : *values_left,
                          .members_max = json_members_max,
                          .depth_max = json_depth_max};
  try {
    LimitedJson parsed = parse_limited_json(text, limits);
    if (values_left != nullptr) *values_left -= parsed.values;
    return std::move(parsed.value);
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

}  // namespace sluice::chat
