// What editors and spreadsheets of some systems put in front of a text in UTF-8.
#pragma once

#include <string_view>

namespace sluice::text {

inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// `text` without the mark.
inline std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  return text;
}

}  // namespace sluice::text
