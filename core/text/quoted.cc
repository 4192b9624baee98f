#include "core/text/quoted.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/text/utf8.h"

namespace sluice::text {
namespace {

constexpr std::size_t name_bytes_max = 80;

// Whether a character of UTF-8 moves a terminal rather than standing in it.
bool is_control(std::string_view character) {
  const char32_t c = utf8::code_point(character);
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

// `kept` stand as they are, and `quotes` get a backslash.
std::string escape(std::string_view text, std::string_view kept, std::string_view quotes) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = utf8::character_bytes(text);
    const std::string_view part = text.substr(0, std::max<std::size_t>(valid, 1));
    text.remove_prefix(part.size());
    if (kept.find(part) != kept.npos) {
      out += part;
    } else if (part == "\n") {
      out += "\\n";
    } else if (part == "\t") {
      out += "\\t";
    } else if (part == "\r") {
      out += "\\r";
    } else if (valid == 0 || is_control(part)) {
      for (const char byte : part)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else {
      if (quotes.find(part) != quotes.npos) out += '\\';
      out += part;
    }
  }
  return out;
}

std::string escape_front(std::string_view text, std::size_t length_max, std::string_view quotes) {
  if (text.size() <= length_max) return escape(text, "", quotes);
  return escape(text.substr(0, utf8::character_start(text, length_max)), "", quotes) + "...";
}

}  // namespace

std::string escaped(std::string_view text, std::size_t length_max, char quote) {
  return escape_front(text, length_max, std::string{quote, '\\'});
}

std::string printable(std::string_view text, std::size_t length_max) {
  return escape_front(text, length_max, "");
}

std::string terminal_text(std::string_view text) {
  return escape(text, "\n\t", "");
}

std::string quoted(std::string_view text) {
  return fmt::format("'{}'", escaped(text, name_bytes_max));
}

}  // namespace sluice::text
