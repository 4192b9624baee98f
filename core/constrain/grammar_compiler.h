// From the rules of a GrammarBuilder to the tables of a Grammar. Used by GrammarBuilder::compile.
//
// Each rule becomes a nondeterministic automaton (Thompson 1968) whose positions have a label: some
// bytes, a call, or an end of a counted loop. The subset construction makes it deterministic; calls
// and loop ends are letters of it like bytes. So the ends of a loop on the way to a state are the
// same for all of its positions, and one count is enough for a state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/constrain/grammar_builder.h"

namespace sluice::constrain {

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarBuilder& builder) : builder_(builder) {}
  Grammar compile(GrammarBuilder::Rule root);

 private:
  using Rule = GrammarBuilder::Rule;
  using Node = GrammarBuilder::Node;
  using Kind = GrammarBuilder::Kind;
  using Flags = std::vector<bool>;  // [expressions]

  enum class Letter : std::uint8_t { none, byte, set, call, enter, check };
  struct Position {
    Letter letter = Letter::none;
    std::uint32_t value = 0;
    std::uint32_t target = 0;
    std::uint32_t loop = Grammar::none;
    std::vector<std::uint32_t> epsilon = {};
  };
  using Subset = std::vector<std::uint32_t>;  // ascending
  struct Moves;
  class SubsetTable;

  void work(std::size_t steps);
  std::span<const Expression> children(const Node& node) const;

  Flags fixpoint(bool of_bytes, bool of_texts) const;
  void find_reachable(Rule root);
  void check_loops() const;
  void check_left_recursion() const;
  std::vector<Rule> rules_in_front(Rule rule) const;

  void divide_bytes();
  void compile_rule(Rule rule);
  std::uint32_t add_position();
  void connect(std::uint32_t from, std::uint32_t to);
  std::uint32_t label(std::uint32_t at, Letter letter, std::uint32_t value);
  std::uint32_t build(Expression expression, std::uint32_t at);
  std::uint32_t build_choice(const Node& node, std::uint32_t at);
  std::uint32_t build_repeat(const Node& node, std::uint32_t at);
  std::uint32_t build_members(const Node& node, std::uint32_t at);
  std::uint32_t build_counted(const Node& node, std::uint32_t at);
  std::uint32_t build_star(Expression part, std::uint32_t at);

  Subset closure(const Subset& positions);
  Moves moves_of(const Subset& subset);
  void add_state(const Subset& subset, std::uint32_t end);
  void fill_state(std::uint32_t state, const Moves& moves, SubsetTable& table);
  void fuse_loop_ends(std::uint32_t state);
  std::uint32_t add_lead(Rule root);

  const GrammarBuilder& builder_;
  std::size_t work_ = 0;
  Flags productive_, nullable_, reachable_;  // reachable_: [rules]
  std::vector<ByteSet> class_sets_;          // the sets of the builder, as sets of classes
  Grammar grammar_;
  std::vector<std::uint32_t> starts_;  // [rules]
  std::vector<Position> positions_;    // of the rule at hand
  std::vector<std::uint32_t> stamps_;  // [positions]: the closure that saw it last
  std::uint32_t stamp_ = 0;
  std::uint32_t loop_ = Grammar::none;  // around the positions that are added
};

}  // namespace sluice::constrain
