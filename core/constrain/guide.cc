#include "core/constrain/guide.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/constrain/grammar_error.h"

namespace sluice::constrain {

using tokenizer::Token;

Guide::Guide(std::shared_ptr<const Constraint> constraint,
             std::shared_ptr<const std::vector<Token>> ends, ThoughtGate gate,
             std::vector<Token> call_openers, IsOver is_over)
    : constraint_(std::move(constraint)),
      ends_(std::move(ends)),
      gate_(std::move(gate)),
      call_openers_(std::move(call_openers)),
      is_over_(std::move(is_over)),
      matcher_(std::in_place, constraint_, ends_),
      is_thinking_(gate_.begins_inside) {}

std::span<const Token> Guide::thought_openers() const {
  if (is_thinking_ || !is_first_) return {};
  return gate_.openers;
}

std::span<const Token> Guide::call_openers() const {
  if (is_thinking_ || has_begun_) return {};
  return call_openers_;
}

std::span<const std::uint64_t> Guide::allowed() {
  if (is_free() || is_thinking_ || is_call_) return {};
  const std::span<const std::uint64_t> words = matcher_->allowed();
  if (std::ranges::all_of(words, [](std::uint64_t word) { return word == 0; })) {
    throw GrammarError(fmt::format(
        "the text cannot go on: it nests deeper than {} levels, or the vocabulary has no token for "
        "what the grammar wants",
        Machine::depth_max));
  }
  if (thought_openers().empty() && call_openers().empty()) return words;
  with_openers_.assign(words.begin(), words.end());
  for (const std::span<const Token> openers : {thought_openers(), call_openers()}) {
    for (const Token token : openers) {
      const auto id = static_cast<std::size_t>(token);
      with_openers_[id / 64] |= std::uint64_t{1} << (id % 64);
    }
  }
  return with_openers_;
}

// Whether the grammar alone decides what comes next.
bool Guide::is_at_grammar() const {
  return !is_free() && !is_thinking_ && !is_call_ && thought_openers().empty() &&
         call_openers().empty();
}

std::optional<Token> Guide::only_choice() {
  return is_at_grammar() ? matcher_->only_choice() : std::nullopt;
}

std::optional<Matcher> Guide::place() const {
  return is_at_grammar() ? std::optional(matcher_->ahead(ahead_)) : std::nullopt;
}

void Guide::take(Token token, std::string_view text) {
  ahead_->next_token();
  if (!is_free()) follow(token, text);
  has_ended_ = has_ended_ || (is_over_ && is_over_(text));
}

// Begins the answer with a token that comes inside of a thought, if it is one for that.
bool Guide::ends_thought(Token token) {
  if (!is_thinking_ || std::ranges::find(gate_.closers, token) == gate_.closers.end()) return false;
  Matcher answer(constraint_, ends_, Matcher::Start::after_thought);
  if (!answer.accept(token)) return false;
  matcher_.emplace(std::move(answer));
  is_thinking_ = is_first_ = false;
  has_begun_ = true;
  return true;
}

void Guide::follow(Token token, std::string_view text) {
  if (ends_thought(token)) return;
  const auto is_among = [token](std::span<const Token> openers) {
    return std::ranges::find(openers, token) != openers.end();
  };
  const bool opens = is_among(thought_openers());
  is_call_ = is_call_ || is_among(call_openers());
  is_first_ = false;
  if (is_call_) return;
  std::optional<std::string> answer;  // nothing: the token is one of the answer
  if (is_thinking_ || opens) {
    answer = gate_.answer(text);
    is_thinking_ = !answer;
    if (is_thinking_) return;
    matcher_.emplace(constraint_, ends_, Matcher::Start::after_thought);
    if (answer->empty()) return;
  }
  if (!(answer ? matcher_->accept_text(*answer) : matcher_->accept(token))) {
    throw GrammarError(fmt::format("token {} (\"{}\") does not match the grammar", token, text));
  }
  const std::string_view taken = answer ? std::string_view(*answer) : text;
  has_begun_ = has_begun_ || taken.find_first_not_of('\n') != std::string_view::npos;
}

}  // namespace sluice::constrain
