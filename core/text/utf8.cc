#include "core/text/utf8.h"

namespace sluice::utf8 {

Lead lead_of(char first) {
  const auto byte = static_cast<std::uint8_t>(first);
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

std::size_t character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = lead_of(text[0]);
  if (lead.bytes <= 1) return lead.bytes;
  if (text.size() < lead.bytes) return 0;
  const auto second = static_cast<std::uint8_t>(text[1]);
  if (second < lead.second_min || second > lead.second_max) return 0;
  for (const char byte : text.substr(2, lead.bytes - 2U)) {
    if (!is_continuation(byte)) return 0;
  }
  return lead.bytes;
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t end = 0;
  while (const std::size_t bytes = character_bytes(text.substr(end))) end += bytes;
  return end;
}

std::size_t invalid_prefix(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && character_bytes(text.substr(end)) == 0) ++end;
  return end;
}

std::size_t character_start(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && is_continuation(text[at])) --at;
  return at;
}

char32_t code_point(std::string_view text) {
  const std::size_t bytes = lead_of(text[0]).bytes;
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t value = bytes == 1 ? first : first & (0x7FU >> bytes);
  for (const char byte : text.substr(1, bytes - 1)) {
    value = (value << 6U) | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  return value;
}

std::string encode(char32_t code_point) {
  const auto byte = [](char32_t value) { return static_cast<char>(value); };
  const auto tail = [&](unsigned shift) { return byte(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xC0U | (code_point >> 6U)), tail(0)};
  if (code_point < 0x10000) return {byte(0xE0U | (code_point >> 12U)), tail(6), tail(0)};
  return {byte(0xF0U | (code_point >> 18U)), tail(12), tail(6), tail(0)};
}

}  // namespace sluice::utf8
