// What the fuzzers of grammars share: texts are written by a grammar, byte by byte as an input
// chooses, and masks of tokens are compared with what the bytes of each token give.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constrain/constraint.h"
#include "core/constrain/grammar_error.h"
#include "core/constrain/machine.h"
#include "tests/fuzz/fuzz.h"
#include "tests/list_tokenizer.h"

namespace sluice::fuzz {

// Steps that one text may take; a token has a share of them.
inline constexpr std::uint64_t text_steps_max = 2'000'000;

// The bytes that may come next, one of which is chosen; nothing: the text is over, or cannot go on.
inline std::optional<std::uint8_t> choose_byte(constrain::Machine& machine,
                                               const constrain::ReadingSet& readings,
                                               Choices& choices, constrain::WorkBudget& budget) {
  std::vector<std::uint8_t> possible;
  constrain::ReadingSet next;
  for (int byte = 0; byte < 256; ++byte) {
    const std::size_t frames = machine.frames();
    if (machine.step(readings, static_cast<std::uint8_t>(byte), next, budget)) {
      possible.push_back(static_cast<std::uint8_t>(byte));
    }
    machine.truncate(frames);
  }
  require(!possible.empty() || readings.may_end, "a text can always go on or end");
  if (possible.empty() || (choices.is_empty() && readings.may_end)) return std::nullopt;
  // Once nothing is left to choose by, what closes a text.
  if (!choices.is_empty()) return possible[choices.below(possible.size())];
  for (const char closing : {'"', '}', ']', ')', 'n'}) {
    const auto byte = static_cast<std::uint8_t>(closing);
    if (std::find(possible.begin(), possible.end(), byte) != possible.end()) return byte;
  }
  return possible.back();
}

// A text that the grammar accepts; nothing when it takes too long to end.
inline std::optional<std::string> write_text(const constrain::Grammar& grammar, Choices choices) {
  constrain::Machine machine(grammar);
  constrain::TokenBudget budget(text_steps_max);
  constrain::ReadingSet readings, next;
  std::string text;
  machine.start(grammar.start, readings, budget);
  for (int i = 0; i < 400; ++i) {
    const auto byte = choose_byte(machine, readings, choices, budget);
    if (!byte) return text;
    require(machine.step(readings, *byte, next, budget), "a byte that may come can be taken");
    std::swap(readings, next);
    machine.keep_only(readings);
    text += static_cast<char>(*byte);
  }
  return readings.may_end ? std::optional(text) : std::nullopt;
}

struct Vocabulary {
  Vocabulary() : tokens(make()), trie(std::make_shared<const constrain::TokenTrie>(tokens)) {}
  static test::ListTokenizer make() {
    std::mt19937_64 random(7);
    return test::random_vocabulary(random, 400);
  }
  test::ListTokenizer tokens;
  std::shared_ptr<const constrain::TokenTrie> trie;
};

inline const Vocabulary& vocabulary() {
  static const Vocabulary all;
  return all;
}

// Writes tokens, and compares each mask with what feeding the bytes of tokens gives.
inline void compare_masks(const std::shared_ptr<const constrain::Constraint>& constraint,
                          Choices choices) {
  const test::ListTokenizer& tokens = vocabulary().tokens;
  constrain::Matcher matcher(constraint, test::ends_of(tokens));
  for (int i = 0; i < 8 && !matcher.is_complete(); ++i) {
    constrain::TokenBudget budget(text_steps_max);
    const std::span<const std::uint64_t> mask = matcher.allowed(budget);
    std::vector<tokenizer::Token> allowed;
    for (tokenizer::Token token = 0; token < tokens.control(); ++token) {
      constrain::Matcher copy = matcher;
      const bool is_allowed = test::has_bit(mask, token);
      if (token % 3 == 0) {
        require(copy.accept(token) == is_allowed, "a mask is what feeding the bytes gives");
      }
      if (is_allowed) allowed.push_back(token);
    }
    require(test::has_bit(mask, tokens.end()) == matcher.may_end(),
            "an end is allowed where it is");
    require(!test::has_bit(mask, tokens.control()), "control tokens are no text");
    if (allowed.empty()) return;
    require(matcher.accept(allowed[choices.below(allowed.size())]), "what is allowed is taken");
  }
}

// Everything that holds of a grammar that was compiled; returns a text that it accepts.
inline std::optional<std::string> check_grammar(constrain::Grammar grammar,
                                                std::string_view choices) {
  try {
    const auto constraint =
        std::make_shared<const constrain::Constraint>(std::move(grammar), vocabulary().trie);
    auto text = write_text(constraint->grammar(), Choices(choices));
    if (text) require(constrain::matches(constraint->grammar(), *text), "what is written matches");
    compare_masks(constraint, Choices(choices));
    return text;
  } catch (const constrain::GrammarError&) {
    return std::nullopt;  // too ambiguous
  }
}

}  // namespace sluice::fuzz
