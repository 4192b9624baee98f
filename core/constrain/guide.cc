#include "core/constrain/guide.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/constrain/grammar_error.h"

namespace sluice::constrain {

using tokenizer::Token;

Guide::Guide(std::shared_ptr<const Constraint> constraint,
             std::shared_ptr<const std::vector<Token>> ends, ThoughtGate gate)
    : constraint_(std::move(constraint)),
      ends_(std::move(ends)),
      gate_(std::move(gate)),
      matcher_(constraint_, ends_),
      is_thinking_(gate_.begins_inside) {}

std::span<const std::uint64_t> Guide::allowed() {
  if (is_thinking_) return {};
  const std::span<const std::uint64_t> words = matcher_.allowed();
  if (!is_first_ || gate_.openers.empty()) return words;
  with_openers_.assign(words.begin(), words.end());
  for (const Token token : gate_.openers) {
    const auto id = static_cast<std::size_t>(token);
    with_openers_[id / 64] |= std::uint64_t{1} << (id % 64);
  }
  return with_openers_;
}

std::optional<Token> Guide::only_choice() {
  if (is_thinking_ || (is_first_ && !gate_.openers.empty())) return std::nullopt;
  return matcher_.only_choice();
}

void Guide::take(Token token, std::string_view text) {
  const bool opens = is_first_ && std::ranges::find(gate_.openers, token) != gate_.openers.end();
  is_first_ = false;
  if (is_thinking_ || opens) {
    const std::optional<std::string> answer = gate_.answer(text);
    is_thinking_ = !answer;
    if (is_thinking_) return;
    matcher_ = Matcher(constraint_, ends_, Matcher::Start::after_thought);
    if (answer->empty() || matcher_.accept_text(*answer)) return;
  } else if (matcher_.accept(token)) {
    return;
  }
  throw GrammarError(fmt::format("token {} (\"{}\") does not match the grammar", token, text));
}

}  // namespace sluice::constrain
