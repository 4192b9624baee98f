// What the rules of a GrammarBuilder are worth before they become tables: which expressions can
// match a text, which the empty one, and which rules are needed. Used by GrammarCompiler.
//
// Every pass is linear in the expressions, and none recurses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/constrain/grammar_builder.h"

namespace sluice::constrain {

class GrammarAnalysis {
 public:
  using Rule = GrammarBuilder::Rule;

  // Throws GrammarError when the root can match no text, when a counted repetition has a part that
  // may be empty, and when a rule calls itself before it reads a byte.
  GrammarAnalysis(const GrammarBuilder& builder, Rule root);

  bool is_productive(Expression expression) const { return productive_[expression]; }
  bool is_reachable(Rule rule) const { return reachable_[rule]; }

 private:
  using Node = GrammarBuilder::Node;
  using Kind = GrammarBuilder::Kind;
  using Flags = std::vector<bool>;  // [expressions], or [rules]

  // Who uses an expression or a rule, as lists that run through arrays.
  struct Users {
    std::vector<std::uint32_t> begin;  // [expressions + 1]: of its part of `list`
    std::vector<Expression> list;      // the expressions that have it as a part, with repetition
    std::vector<Rule> first_rule, next_rule;        // [expressions], [rules]: whose body it is
    std::vector<Expression> first_call, next_call;  // [rules], [expressions]: calls of the rule
  };

  std::span<const Expression> children(const Node& node) const;
  std::span<const Expression> needed_parts(const Node& node) const;
  Users find_users() const;
  Flags fixpoint(const Users& users, bool of_bytes, bool of_texts) const;
  Rule innermost_impossible(Rule root) const;
  void find_reachable(Rule root);
  void check_loops() const;
  void check_left_recursion() const;
  bool comes_first(const Node& node, std::size_t part) const;

  const GrammarBuilder& builder_;
  Flags productive_, nullable_, reachable_;
};

}  // namespace sluice::constrain
