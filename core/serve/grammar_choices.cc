#include "core/serve/grammar_choices.h"

#include "core/constrain/grammar_error.h"

namespace sluice::serve {

using constrain::GrammarError;

std::span<const std::uint64_t> GrammarChoices::allowed() {
  try {
    return place_.allowed();
  } catch (const GrammarError&) {
    return {};
  }
}

std::optional<tokenizer::Token> GrammarChoices::only() {
  try {
    return place_.only_choice();
  } catch (const GrammarError&) {
    return std::nullopt;
  }
}

bool GrammarChoices::take(tokenizer::Token token) {
  try {
    return place_.accept(token);
  } catch (const GrammarError&) {
    return false;
  }
}

}  // namespace sluice::serve
