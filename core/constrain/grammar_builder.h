// Puts a grammar together from expressions and rules, and compiles it.
//
//   GrammarBuilder builder;
//   const auto list = builder.add_rule("list");
//   builder.define(list, builder.sequence({builder.literal("["), builder.repeat(...), ...}));
//   const Grammar grammar = builder.compile(list);
//
// Expressions are numbers that belong to their builder; one may be used in several places. What
// is added is counted in the budget at once, so hostile input ends with an error in bounded time
// and memory. Expressions may lie within each other as deep as memory allows: nothing here
// recurses.
//
// Threads: used by one thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/constrain/budget.h"
#include "core/constrain/grammar.h"
#include "core/constrain/grammar_error.h"

namespace sluice::constrain {

using ByteSet = std::bitset<256>;

struct CharacterRange {
  char32_t first, last;  // both included
};

// An expression of a GrammarBuilder, by its number.
using Expression = std::uint32_t;

class GrammarBuilder {
 public:
  using Rule = std::uint32_t;
  static constexpr std::uint32_t unlimited = Grammar::unlimited;

  // `budget` must outlive the builder.
  explicit GrammarBuilder(CompileBudget& budget) : budget_(&budget) {}

  CompileBudget& budget() { return *budget_; }

  // All of these throw GrammarError beyond the budget.
  Expression empty();    // matches the empty text
  Expression nothing();  // matches no text at all
  Expression literal(std::string_view bytes);
  Expression bytes(const ByteSet& set);  // one byte of the set
  // One character of the ranges, in UTF-8. Surrogates are left out: they have no UTF-8.
  Expression characters(std::span<const CharacterRange> ranges);
  Expression sequence(std::vector<Expression> parts);
  Expression choice(std::vector<Expression> parts);
  Expression optional(Expression part) { return repeat(part, 0, 1); }
  Expression repeat(Expression part, std::uint32_t min, std::uint32_t max);
  Expression call(Rule rule);

  // A list in a fixed order, in which some may be missing, with a separator between those that are
  // there. Its size is that of its parts, however many of them are optional.
  enum class Times : std::uint8_t { once, optional, any };
  struct Member {
    Expression expression;
    Times times;
  };
  // `is_some`: at least one of them is there; a member itself is never the empty text then.
  Expression members(const std::vector<Member>& members, Expression separator,
                     bool is_some = false);

  Rule add_rule(std::string name);  // to be defined later; the name is for messages
  void define(Rule rule, Expression body);
  std::size_t rules() const { return rules_.size(); }

  // Throws GrammarError beyond the budget or the size of tables, when the root can match no text,
  // or when a rule calls itself before it reads a byte.
  Grammar compile(Rule root) const;

 private:
  friend class GrammarAnalysis;
  friend class GrammarCompiler;
  enum class Kind : std::uint8_t {
    nothing,
    literal,
    bytes,
    call,
    sequence,  // this and those that follow have parts
    choice,
    repeat,
    members,  // first what has to be possible, then the separator, then all
  };
  struct Node {
    Kind kind;
    bool has_counter = false;  // contains a loop that is counted, outside of calls
    std::uint32_t begin = 0;   // literal: in literals_; bytes: in sets_; others: in children_
    std::uint32_t end = 0;     // call: `begin` is the rule
    // repeat; members: `min` is the first in times_, and `max` is 0 if there have to be some
    std::uint32_t min = 0, max = 0;
    std::uint32_t size = 1;  // positions that it needs, saturated
  };
  struct RuleBody {
    std::string name;
    Expression body;
  };

  Expression add(Node node);
  Expression add_parts(Kind kind, const std::vector<Expression>& parts);
  bool is_counted(const Node& part, std::uint32_t min, std::uint32_t max) const;

  CompileBudget* budget_;
  std::vector<Node> nodes_;
  std::vector<Expression> children_;
  std::vector<Times> times_;
  std::string literals_;
  std::vector<ByteSet> sets_;
  std::unordered_map<ByteSet, std::uint32_t> set_numbers_;
  std::vector<RuleBody> rules_;
};

}  // namespace sluice::constrain
