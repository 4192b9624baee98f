#include "core/text/quoted.h"

#include <fmt/format.h>

#include "core/text/utf8.h"

namespace sluice::text {
namespace {

constexpr std::size_t name_bytes_max = 80;

std::string escape(std::string_view text, std::size_t length_max, std::string_view quotes) {
  const bool cut = text.size() > length_max;
  if (cut) text = text.substr(0, utf8::character_start(text, length_max));
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (quotes.find(c) != quotes.npos) {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (cut) out += "...";
  return out;
}

}  // namespace

std::string escaped(std::string_view text, std::size_t length_max) {
  return escape(text, length_max, "'\\");
}

std::string printable(std::string_view text, std::size_t length_max) {
  return escape(text, length_max, "");
}

std::string quoted(std::string_view text) {
  return fmt::format("'{}'", escaped(text, name_bytes_max));
}

}  // namespace sluice::text
