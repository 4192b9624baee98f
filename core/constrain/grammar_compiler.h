// From the rules of a GrammarBuilder to the tables of a Grammar. Used by GrammarBuilder::compile.
//
// Each rule becomes a nondeterministic automaton (Thompson 1968) whose positions have a label: some
// bytes, a call, or an end of a counted loop. The subset construction makes it deterministic; calls
// and loop ends are letters of it like bytes. So the ends of a loop on the way to a state are the
// same for all of its positions, and one count is enough for a state.
//
// Nothing recurses: an expression is a gap between two positions, and filling a gap leaves those of
// its parts. Every position, edge, subset and state is counted in the budget where it is made.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/constrain/grammar_analysis.h"
#include "core/constrain/grammar_builder.h"

namespace sluice::constrain {

class GrammarCompiler {
 public:
  static constexpr std::size_t states_max = std::size_t{1} << 16;
  static constexpr std::size_t table_bytes_max = std::size_t{16} << 20;

  // Throws GrammarError, as GrammarBuilder::compile does.
  GrammarCompiler(const GrammarBuilder& builder, GrammarBuilder::Rule root);
  Grammar compile();

 private:
  using Rule = GrammarBuilder::Rule;
  using Node = GrammarBuilder::Node;
  using Kind = GrammarBuilder::Kind;

  enum class Letter : std::uint8_t { none, byte, set, call, enter, check };
  // It has one letter, or edges without a letter, or nothing at all, and then ends its rule.
  struct Position {
    Letter letter = Letter::none;
    std::uint32_t value = 0;
    std::uint32_t target = 0;
    std::uint32_t loop = Grammar::none;
    std::uint32_t first_edge = Grammar::none;
  };
  struct Edge {
    std::uint32_t target, next;
  };
  // An expression that is still to be put between two positions; nothing leaves `from` yet.
  struct Gap {
    Expression expression;
    std::uint32_t from, to;
    std::uint32_t loop;  // around it
  };
  using Subset = std::vector<std::uint32_t>;  // ascending
  struct Moves;
  class SubsetTable;

  void work(std::size_t steps) { budget_.spend(steps); }
  std::span<const Expression> children(const Node& node) const;

  void divide_bytes();
  void compile_rule(Rule rule);
  std::uint32_t add_position(std::uint32_t loop);
  void connect(std::uint32_t from, std::uint32_t to);
  void label(std::uint32_t from, Letter letter, std::uint32_t value, std::uint32_t to);
  void fill(const Gap& gap);
  void fill_literal(const Node& node, const Gap& gap);
  void fill_sequence(const Node& node, const Gap& gap);
  void fill_choice(const Node& node, const Gap& gap);
  void fill_repeat(const Node& node, const Gap& gap);
  void fill_counted(const Node& node, const Gap& gap);
  void fill_members(const Node& node, const Gap& gap);

  Subset closure(const Subset& positions);
  Moves moves_of(const Subset& subset);
  void add_state(const Subset& subset, std::uint32_t end);
  void fill_state(std::uint32_t state, const Moves& moves, SubsetTable& table);
  void fuse_loop_ends(std::uint32_t state);
  std::uint32_t add_lead();

  const GrammarBuilder& builder_;
  CompileBudget& budget_;
  Rule root_;
  GrammarAnalysis analysis_;
  std::vector<ByteSet> class_sets_;  // the sets of the builder, as sets of classes
  Grammar grammar_;
  std::vector<std::uint32_t> starts_;  // [rules]
  std::vector<Position> positions_;    // of the rule at hand
  std::vector<Edge> edges_;            // the same
  std::vector<Gap> gaps_;              // the same
  std::vector<std::uint32_t> stamps_;  // [positions]: the closure that saw it last
  std::uint32_t stamp_ = 0;
  std::size_t rule_bytes_ = 0;  // that the budget counts for the rule at hand
};

}  // namespace sluice::constrain
