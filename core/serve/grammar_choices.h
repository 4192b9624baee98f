// What may come next in a text that is kept to a grammar, for drafts of it. A grammar that is too
// ambiguous to look ahead in gives no choices; the text itself has its own place in it.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "core/constrain/constraint.h"
#include "core/speculate/source.h"

namespace sluice::serve {

class GrammarChoices final : public speculate::Choices {
 public:
  explicit GrammarChoices(constrain::Matcher place) : place_(std::move(place)) {}

  std::span<const std::uint64_t> allowed() override;
  std::optional<tokenizer::Token> only() override;
  bool take(tokenizer::Token token) override;
  bool is_over() const override { return place_.is_complete(); }

 private:
  constrain::Matcher place_;
};

}  // namespace sluice::serve
