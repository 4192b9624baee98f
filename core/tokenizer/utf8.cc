#include "core/tokenizer/utf8.h"

#include <cstdint>

namespace sluice::tokenizer {

namespace {

// What may follow a lead byte: how many bytes the character has, and the range of its second byte,
// which is where overlong forms, surrogates and values that are too large show.
struct Lead {
  std::uint8_t bytes;
  std::uint8_t second_min;
  std::uint8_t second_max;
};

constexpr Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes <= 1) return lead.bytes;
  if (text.size() < lead.bytes) return 0;
  if (byte(1) < lead.second_min || byte(1) > lead.second_max) return 0;
  for (std::size_t i = 2; i < lead.bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return lead.bytes;
}

std::size_t utf8_valid_prefix(std::string_view text) {
  std::size_t end = 0;
  while (const std::size_t bytes = utf8_character_bytes(text.substr(end))) end += bytes;
  return end;
}

std::size_t utf8_invalid_prefix(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && utf8_character_bytes(text.substr(end)) == 0) ++end;
  return end;
}

}  // namespace sluice::tokenizer
