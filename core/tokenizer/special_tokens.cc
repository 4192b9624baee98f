#include "core/tokenizer/special_tokens.h"

#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <set>

namespace sluice::tokenizer {

namespace {

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::uint8_t byte(char c) {
  return static_cast<std::uint8_t>(c);
}

// Phi-3's own list of the tokens that leave the white space behind them alone.
bool leaves_space(std::string_view text) {
  return text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  std::map<std::size_t, Length, std::greater<>> by_length;
  const std::set<Token> takes_space(vocabulary.takes_space.begin(), vocabulary.takes_space.end());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool user_defined = type == TokenType::user_defined;
    if (!user_defined && type != TokenType::control && type != TokenType::unknown) continue;
    const std::string& text = vocabulary.tokens[i];
    if (text.size() > piece_bytes_max) {
      throw vocabulary_error(
          vocabulary, "tokenizer.ggml.tokens",
          fmt::format("token {} has {} bytes; one that is found in text may have up to {}", i,
                      text.size(), piece_bytes_max));
    }
    const auto id = static_cast<Token>(i);
    by_text_[text] = {
        id, user_defined,
        takes_space.contains(id) || (vocabulary.control_takes_space && !leaves_space(text))};
    Length& length = by_length[text.size()];
    length.bytes = text.size();
    length.first_bytes.set(byte(text.front()));
    length.last_bytes.set(byte(text.back()));
    length.any_user_defined |= user_defined;
  }
  for (const auto& [bytes, length] : by_length) lengths_.push_back(length);
}

std::vector<Fragment> SpecialTokens::partition(std::string_view text, bool parse_special) const {
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({0, text.size(), -1});
  std::vector<Fragment> next;
  for (const Length& length : lengths_) {
    if (!parse_special && !length.any_user_defined) continue;
    next.clear();
    for (const Fragment& fragment : fragments) {
      if (fragment.token >= 0) {
        next.push_back(fragment);
      } else {
        cut(text, fragment, length, parse_special, next);
      }
    }
    fragments.swap(next);
  }
  return fragments;
}

// A token is there unless a longer one begins within its length, which depends on still longer ones
// in the same way. Shorter ones, and those before it, have no say.
std::size_t SpecialTokens::reach(bool parse_special) const {
  std::size_t bytes = 0;
  for (const Length& length : lengths_) {
    if (parse_special || length.any_user_defined) bytes += length.bytes;
  }
  return bytes;
}

// The token of this length that is written at `position`; null if there is none.
const SpecialTokens::Special* SpecialTokens::at(std::string_view text, std::size_t position,
                                                const Length& length, bool parse_special) const {
  if (!length.first_bytes[byte(text[position])] ||
      !length.last_bytes[byte(text[position + length.bytes - 1])]) {
    return nullptr;
  }
  const auto found = by_text_.find(text.substr(position, length.bytes));
  if (found == by_text_.end()) return nullptr;
  return parse_special || found->second.user_defined ? &found->second : nullptr;
}

// Cuts the tokens of one length out of a fragment of ordinary text.
void SpecialTokens::cut(std::string_view text, Fragment fragment, const Length& length,
                        bool parse_special, std::vector<Fragment>& out) const {
  std::size_t rest = fragment.begin;
  std::size_t position = fragment.begin;
  while (position + length.bytes <= fragment.end) {
    const Special* special = at(text, position, length, parse_special);
    if (special == nullptr) {
      ++position;
      continue;
    }
    if (position > rest) out.push_back({rest, position, -1});
    rest = position + length.bytes;
    out.push_back({position, rest, special->token});
    if (parse_special && special->takes_space) {
      while (rest < fragment.end && is_ascii_space(text[rest])) ++rest;
    }
    position = rest;
  }
  if (rest < fragment.end) out.push_back({rest, fragment.end, -1});
}

}  // namespace sluice::tokenizer
