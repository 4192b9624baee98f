// Names that mean the same in capitals: units, fields of HTTP, members of a URL.
#pragma once

#include <string>
#include <string_view>

namespace sluice::text {

// `text` with the letters of ASCII in lower case; other bytes stay.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace sluice::text
