// What the tests of core/constrain share: texts written at random.
#pragma once

#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/constrain/constraint.h"
#include "tests/catch.h"
#include "tests/list_tokenizer.h"

namespace sluice::test {

using constrain::Constraint;
using constrain::Grammar;
using constrain::Matcher;
using constrain::TokenTrie;

// Tokens at random, later those that close what is open. Nothing if it does not end.
inline std::optional<std::string> write_at_random(const ListTokenizer& vocabulary, Matcher& matcher,
                                                  std::mt19937_64& random) {
  using tokenizer::Token;
  const auto closes = [&](Token token) {
    if (!vocabulary.is_ordinary(token)) return true;
    const std::string_view piece = vocabulary.piece(token);
    return piece == "\"" || piece == "}" || piece == "]" || piece == ")" || piece == "n" ||
           piece.starts_with("</");
  };
  std::string text;
  for (int i = 0; i < 3000 && !matcher.is_complete(); ++i) {
    const std::span<const std::uint64_t> mask = matcher.allowed();
    std::vector<Token> choices, closing;
    for (std::size_t id = 0; id < vocabulary.vocabulary_size(); ++id) {
      const auto token = static_cast<Token>(id);
      if (!has_bit(mask, token)) continue;
      choices.push_back(token);
      if (closes(token)) closing.push_back(token);
    }
    REQUIRE_FALSE(choices.empty());
    const std::vector<Token>& from = i > 40 && !closing.empty() ? closing : choices;
    const Token token = from[random() % from.size()];
    if (token == vocabulary.end()) return text;
    REQUIRE(matcher.accept(token));
    text += vocabulary.piece(token, true);
  }
  return matcher.is_complete() ? std::optional(text) : std::nullopt;
}

}  // namespace sluice::test
