#include "core/speculate/token_index.h"

#include <algorithm>
#include <utility>

namespace sluice::speculate {

using tokenizer::Token;

namespace {

constexpr std::size_t slots_min = 256;
constexpr std::size_t places_max = 64;  // that are looked at for a match

}  // namespace

TokenIndex::TokenIndex(std::size_t tokens_max) : tokens_max_(tokens_max) {
  clear();
}

void TokenIndex::clear() {
  tokens_.clear();
  link_all();
}

std::size_t TokenIndex::add(Token token) {
  const std::size_t dropped = tokens_.size() == tokens_max_ ? tokens_max_ / 2 : 0;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(dropped));
  tokens_.push_back(token);
  if (dropped != 0 || tokens_.size() > newest_.size()) {
    link_all();
  } else {
    link(tokens_.size() - 1);
  }
  return dropped;
}

std::size_t TokenIndex::agreement_at(std::size_t next, std::span<const Token> text) const {
  const std::size_t most = std::min({next, text.size(), agreement_max});
  std::size_t count = 0;
  while (count < most && tokens_[next - 1 - count] == text[text.size() - 1 - count]) ++count;
  return count;
}

Match TokenIndex::find(std::span<const Token> text,
                       const std::function<bool(std::size_t next)>& is_allowed) const {
  Match best;
  if (text.size() < 2) return best;
  std::size_t place = newest_[slot_of(text[text.size() - 2], text.back())];
  for (std::size_t tries = 0; place != 0 && tries < places_max; ++tries) {
    const std::size_t next = place + 1, agreement = agreement_at(next, text);
    place = earlier_[place];
    if (agreement < 2 || agreement <= best.agreement || next == tokens_.size()) continue;
    if (!is_allowed || is_allowed(next)) best = {next, agreement};
  }
  return best;
}

std::size_t TokenIndex::slot_of(Token first, Token second) const {
  const auto bits = [](Token token) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(token));
  };
  return ((bits(first) << 32 | bits(second)) * 0x9e3779b97f4a7c15) >> 32 & (newest_.size() - 1);
}

void TokenIndex::link(std::size_t position) {
  earlier_.push_back(0);
  if (position == 0) return;
  std::uint32_t& newest = newest_[slot_of(tokens_[position - 1], tokens_[position])];
  earlier_.back() = std::exchange(newest, static_cast<std::uint32_t>(position));
}

// Makes the index anew, with a slot for each token and room for as many more.
void TokenIndex::link_all() {
  std::size_t slots = slots_min;
  while (slots < 2 * tokens_.size()) slots *= 2;
  newest_.assign(slots, 0);
  earlier_.clear();
  for (std::size_t i = 0; i < tokens_.size(); ++i) link(i);
}

}  // namespace sluice::speculate
