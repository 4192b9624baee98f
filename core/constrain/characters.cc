#include "core/constrain/characters.h"

#include <algorithm>

#include "core/text/utf8.h"

namespace sluice::constrain {

std::optional<char32_t> take_character(std::string_view& text) {
  const std::size_t bytes = utf8::character_bytes(text);
  if (bytes == 0) return std::nullopt;
  const char32_t character = utf8::code_point(text);
  text.remove_prefix(bytes);
  return character;
}

bool is_surrogate(char32_t character) {
  return character >= 0xD800 && character <= 0xDFFF;
}

Ranges sorted(Ranges ranges) {
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  Ranges merged;
  for (const CharacterRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

Ranges complement(Ranges ranges) {
  Ranges rest;
  char32_t next = 0;
  for (const CharacterRange& range : sorted(std::move(ranges))) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= last_character) rest.push_back({next, last_character});
  return rest;
}

Ranges intersection(const Ranges& a, const Ranges& b) {
  Ranges outside = complement(a);
  const Ranges outside_b = complement(b);
  outside.insert(outside.end(), outside_b.begin(), outside_b.end());
  return complement(std::move(outside));
}

bool contains(const Ranges& ranges, char32_t character) {
  return std::ranges::any_of(ranges, [&](const CharacterRange& range) {
    return range.first <= character && character <= range.last;
  });
}

std::optional<char32_t> take_hexadecimal(std::string_view& text, unsigned digits) {
  if (text.size() < digits) return std::nullopt;
  char32_t value = 0;
  for (unsigned i = 0; i < digits; ++i) {
    const char digit = text[i];
    value <<= 4U;
    if (digit >= '0' && digit <= '9') {
      value |= static_cast<char32_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value |= static_cast<char32_t>(digit - 'a' + 10);
    } else if (digit >= 'A' && digit <= 'F') {
      value |= static_cast<char32_t>(digit - 'A' + 10);
    } else {
      return std::nullopt;
    }
  }
  text.remove_prefix(digits);
  return value;
}

}  // namespace sluice::constrain
