#include "core/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "core/text/utf8.h"

namespace sluice::text {
namespace {

struct Alphabet {
  std::array<std::int16_t, 256 + 68> byte_of_character;  // by code point; -1: of none
  std::array<char16_t, 256> character_of_byte;
};

constexpr Alphabet alphabet = [] {
  Alphabet out{};
  out.byte_of_character.fill(-1);
  std::size_t next = 256;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const std::size_t character = printable ? byte : next++;
    out.byte_of_character[character] = static_cast<std::int16_t>(byte);
    out.character_of_byte[byte] = static_cast<char16_t>(character);
  }
  return out;
}();

}  // namespace

std::string encode_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += utf8::encode(alphabet.character_of_byte[static_cast<unsigned char>(byte)]);
  }
  return text;
}

bool decode_byte_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty()) {
    const std::size_t length = utf8::character_bytes(text);
    if (length == 0 || length > 2) return false;
    const auto lead = static_cast<std::uint8_t>(text[0]);
    const unsigned code_point =
        length == 1 ? lead : (lead & 0x1Fu) << 6 | (static_cast<std::uint8_t>(text[1]) & 0x3Fu);
    if (code_point >= alphabet.byte_of_character.size()) return false;
    const std::int16_t byte = alphabet.byte_of_character[code_point];
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace sluice::text
