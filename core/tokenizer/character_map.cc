#include "core/tokenizer/character_map.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace sluice::tokenizer {
namespace {

constexpr std::uint32_t value_bit = std::uint32_t{1} << 31;

std::uint32_t read_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= std::uint32_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

std::uint32_t offset_of(std::uint32_t unit) {
  const bool is_wide = (unit >> 9 & 1) != 0;
  return (unit & ~value_bit) >> 10 << (is_wide ? 8 : 0);
}

bool ends_source(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

}  // namespace

CharacterMap::CharacterMap(std::string_view file) {
  if (file.empty()) return;
  if (file.size() < 4) throw std::invalid_argument("has no size of its trie");
  const std::size_t trie_bytes = read_u32(file);
  file.remove_prefix(4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= file.size()) {
    throw std::invalid_argument(
        fmt::format("has a trie of {} bytes in the {} behind its size", trie_bytes, file.size()));
  }
  if (file.back() != '\0') throw std::invalid_argument("ends within a replacement");
  replacements_ = file.substr(trie_bytes);
  for (std::size_t begin = 0, end = 0; begin < replacements_.size(); begin = end + 1) {
    end = replacements_.find('\0', begin);
    if (end - begin <= replacement_bytes_max) continue;
    throw std::invalid_argument(fmt::format("has a replacement of {} bytes; expected up to {}",
                                            end - begin, replacement_bytes_max));
  }
  units_.reserve(trie_bytes / 4);
  for (std::size_t at = 0; at < trie_bytes; at += 4) {
    const std::uint32_t unit = read_u32(file.substr(at));
    const bool is_place = (unit & value_bit) != 0;
    if (is_place && (unit & ~value_bit) >= replacements_.size()) {
      throw std::invalid_argument(fmt::format("has a replacement at {} of {} bytes",
                                              unit & ~value_bit, replacements_.size()));
    }
    units_.push_back(unit);
  }
}

template <typename Visit>
std::size_t CharacterMap::walk(std::string_view text, const Visit& visit) const {
  if (units_.empty()) return 0;
  const std::size_t most = std::min(text.size(), source_bytes_max);
  std::uint32_t children = offset_of(units_[0]);  // where they are, but for their byte
  for (std::size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const std::uint32_t child = children ^ byte;
    const bool is_child =
        byte != 0 && child < units_.size() && (units_[child] & (value_bit | 0xFF)) == byte;
    if (!is_child) return i;
    children = child ^ offset_of(units_[child]);
    if (ends_source(units_[child]) && children < units_.size()) visit(i + 1, units_[children]);
  }
  return most;
}

CharacterMap::Replacement CharacterMap::find(std::string_view text) const {
  Replacement longest;
  walk(text, [&](std::size_t bytes, std::uint32_t unit) {
    if ((unit & value_bit) == 0) return;  // points at no replacement
    longest = {bytes, replacements_.c_str() + (unit & ~value_bit)};
  });
  return longest;
}

std::size_t CharacterMap::reach(std::string_view text) const {
  return walk(text, [](std::size_t, std::uint32_t) {});
}

}  // namespace sluice::tokenizer
