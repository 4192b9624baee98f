#include "core/speculate/shared_texts.h"

#include <algorithm>

namespace sluice::speculate {

using tokenizer::Token;

namespace {

constexpr Token end_of_text = -1;  // between two texts; it is in none
constexpr std::size_t text_max = SharedTexts::tokens_max / 4;

}  // namespace

void SharedTexts::add(std::uint32_t group, std::span<const Token> text, std::size_t written) {
  if (written == 0) return;
  const std::size_t wanted = std::min(written, text_max) + TokenIndex::agreement_max;
  const auto add_token = [&](Token token) {
    const std::size_t dropped = index_.add(token);
    std::erase_if(texts_, [&](const Text& one) { return one.end <= dropped; });
    for (Text& one : texts_) one.end -= dropped;
  };
  for (const Token token : text.last(std::min(wanted, text.size()))) add_token(token);
  add_token(end_of_text);
  texts_.push_back({index_.size() - 1, group});
}

SharedTexts::Found SharedTexts::find(std::uint32_t group, std::span<const Token> text) const {
  const Match match = index_.find(text, [&](std::size_t next) {
    const Text& found = text_at(next);
    return found.group == group && next < found.end;
  });
  if (match.agreement == 0) return {};
  const std::size_t count = text_at(match.next).end - match.next;
  return {index_.tokens().subspan(match.next, count), match.agreement};
}

// The text that has this position, or the separator behind it.
const SharedTexts::Text& SharedTexts::text_at(std::size_t position) const {
  return *std::ranges::lower_bound(texts_, position, {}, &Text::end);
}

}  // namespace sluice::speculate
