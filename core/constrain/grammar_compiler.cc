#include "core/constrain/grammar_compiler.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <unordered_map>
#include <utility>

namespace sluice::constrain {

// What a subset leads to: target positions by letter.
struct GrammarCompiler::Moves {
  std::vector<Subset> by_class;  // [classes]
  std::map<std::pair<Letter, std::uint32_t>, Subset> by_letter;
};

// The states that were made of subsets of one rule, and those that are still to be filled.
class GrammarCompiler::SubsetTable {
 public:
  SubsetTable(GrammarCompiler& compiler, std::uint32_t end)
      : compiler_(compiler), end_(end), held_(compiler.budget_) {}

  // The state for the closure of these positions.
  std::uint32_t state_of(const Subset& targets) {
    const auto known = by_targets_.find(targets);
    if (known != by_targets_.end()) return known->second;
    hold(targets);
    Subset subset = compiler_.closure(targets);
    const auto next = static_cast<std::uint32_t>(compiler_.grammar_.states.size());
    const auto [at, is_new] = by_subset_.try_emplace(std::move(subset), next);
    if (is_new) {
      hold(at->first);
      compiler_.add_state(at->first, end_);
      open_.push_back(&*at);
    }
    by_targets_.emplace(targets, at->second);
    return at->second;
  }

  void fill_all() {
    while (!open_.empty()) {
      const auto* made = open_.back();
      open_.pop_back();
      compiler_.fill_state(made->second, compiler_.moves_of(made->first), *this);
    }
  }

 private:
  struct Hash {
    std::size_t operator()(const Subset& subset) const {
      std::uint64_t hash = subset.size();
      for (const std::uint32_t value : subset) {
        hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 29U;
      }
      return hash;
    }
  };
  using States = std::unordered_map<Subset, std::uint32_t, Hash>;

  void hold(const Subset& subset) {
    constexpr std::size_t place = 128;  // in a table, and among the open ones
    held_.add(place + subset.capacity() * sizeof(std::uint32_t));
  }

  GrammarCompiler& compiler_;
  std::uint32_t end_;
  HeldBytes held_;
  States by_targets_, by_subset_;
  std::vector<const States::value_type*> open_;
};

GrammarCompiler::GrammarCompiler(const GrammarBuilder& builder, Rule root)
    : builder_(builder), budget_(*builder.budget_), root_(root), analysis_(builder, root) {}

std::span<const Expression> GrammarCompiler::children(const Node& node) const {
  return std::span(builder_.children_).subspan(node.begin, node.end - node.begin);
}

// Divides the bytes into classes that no set and no literal tells apart.
void GrammarCompiler::divide_bytes() {
  std::vector<ByteSet> classes = {ByteSet().set()};
  const auto divide = [&](const ByteSet& set) {
    const std::size_t count = classes.size();
    for (std::size_t i = 0; i < count; ++i) {
      const ByteSet inside = classes[i] & set, outside = classes[i] & ~set;
      if (inside.none() || outside.none()) continue;
      classes[i] = inside;
      classes.push_back(outside);
    }
    work(count);
  };
  ByteSet of_literals;
  for (const char byte : builder_.literals_) of_literals.set(static_cast<unsigned char>(byte));
  of_literals.set('\n');  // see add_lead
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (of_literals[byte]) divide(ByteSet().set(byte));
  }
  for (const ByteSet& set : builder_.sets_) divide(set);
  grammar_.classes = static_cast<std::uint32_t>(classes.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (classes[i][byte]) grammar_.byte_class[byte] = static_cast<std::uint8_t>(i);
    }
  }
  budget_.hold(builder_.sets_.size() * sizeof(ByteSet));
  work(builder_.literals_.size() + 256 * builder_.sets_.size());
  class_sets_.reserve(builder_.sets_.size());
  for (const ByteSet& set : builder_.sets_) {
    ByteSet of_classes;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (set[byte]) of_classes.set(grammar_.byte_class[byte]);
    }
    class_sets_.push_back(of_classes);
  }
}

std::uint32_t GrammarCompiler::add_position(std::uint32_t loop) {
  constexpr std::size_t bytes = sizeof(Position) + sizeof(Gap) + sizeof(stamps_[0]);
  budget_.hold(CompileBudget::growth * bytes);
  rule_bytes_ += CompileBudget::growth * bytes;
  work(1);
  positions_.push_back({.loop = loop});
  return static_cast<std::uint32_t>(positions_.size() - 1);
}

void GrammarCompiler::connect(std::uint32_t from, std::uint32_t to) {
  budget_.hold(CompileBudget::growth * sizeof(Edge));
  rule_bytes_ += CompileBudget::growth * sizeof(Edge);
  edges_.push_back({to, positions_[from].first_edge});
  positions_[from].first_edge = static_cast<std::uint32_t>(edges_.size() - 1);
}

void GrammarCompiler::label(std::uint32_t from, Letter letter, std::uint32_t value,
                            std::uint32_t to) {
  positions_[from].letter = letter;
  positions_[from].value = value;
  positions_[from].target = to;
}

void GrammarCompiler::fill(const Gap& gap) {
  const Node& node = builder_.nodes_[gap.expression];
  switch (node.kind) {
    case Kind::nothing:
      break;  // is not productive, so never in a gap
    case Kind::literal:
      return fill_literal(node, gap);
    case Kind::bytes:
      return label(gap.from, Letter::set, node.begin, gap.to);
    case Kind::call:
      return label(gap.from, Letter::call, node.begin, gap.to);
    case Kind::sequence:
      return fill_sequence(node, gap);
    case Kind::choice:
      return fill_choice(node, gap);
    case Kind::repeat:
      return fill_repeat(node, gap);
    case Kind::members:
      return fill_members(node, gap);
  }
}

void GrammarCompiler::fill_literal(const Node& node, const Gap& gap) {
  if (node.begin == node.end) return connect(gap.from, gap.to);
  std::uint32_t at = gap.from;
  for (std::uint32_t i = node.begin; i < node.end; ++i) {
    const std::uint32_t next = i + 1 == node.end ? gap.to : add_position(gap.loop);
    label(at, Letter::byte, static_cast<unsigned char>(builder_.literals_[i]), next);
    at = next;
  }
}

void GrammarCompiler::fill_sequence(const Node& node, const Gap& gap) {
  const std::span<const Expression> parts = children(node);
  if (parts.empty()) return connect(gap.from, gap.to);
  std::uint32_t at = gap.from;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::uint32_t next = i + 1 == parts.size() ? gap.to : add_position(gap.loop);
    gaps_.push_back({parts[i], at, next, gap.loop});
    at = next;
  }
}

void GrammarCompiler::fill_choice(const Node& node, const Gap& gap) {
  for (const Expression child : children(node)) {
    if (!analysis_.is_productive(child)) continue;
    const std::uint32_t begin = add_position(gap.loop);
    connect(gap.from, begin);
    gaps_.push_back({child, begin, gap.to, gap.loop});
  }
}

void GrammarCompiler::fill_repeat(const Node& node, const Gap& gap) {
  const Expression part = builder_.children_[node.begin];
  if (!analysis_.is_productive(part)) return connect(gap.from, gap.to);  // it can be left out
  if (builder_.is_counted(builder_.nodes_[part], node.min, node.max)) {
    return fill_counted(node, gap);
  }
  std::uint32_t at = gap.from;
  const auto add_round = [&](std::uint32_t begin, std::uint32_t end) {
    gaps_.push_back({part, begin, end, gap.loop});
    at = end;
  };
  for (std::uint32_t i = 0; i < node.min; ++i) add_round(at, add_position(gap.loop));
  if (node.max == Grammar::unlimited) {
    const std::uint32_t head = add_position(gap.loop), begin = add_position(gap.loop);
    connect(at, head);
    connect(head, begin);
    add_round(begin, head);
  } else {
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      connect(at, gap.to);
      const std::uint32_t begin = add_position(gap.loop);
      connect(at, begin);
      add_round(begin, add_position(gap.loop));
    }
  }
  connect(at, gap.to);
}

void GrammarCompiler::fill_counted(const Node& node, const Gap& gap) {
  const auto loop = static_cast<std::uint32_t>(grammar_.loops.size());
  budget_.hold(CompileBudget::growth * sizeof(Grammar::Loop));
  grammar_.loops.push_back({node.min, node.max});
  const std::uint32_t head = add_position(loop), enter = add_position(loop),
                      check = add_position(loop), begin = add_position(loop);
  connect(gap.from, head);
  connect(head, enter);
  connect(head, check);
  label(enter, Letter::enter, loop, begin);
  label(check, Letter::check, loop, gap.to);
  gaps_.push_back({builder_.children_[node.begin], begin, head, loop});
}

// Two chains of positions: in front of each member with nothing before it, and with something.
void GrammarCompiler::fill_members(const Node& node, const Gap& gap) {
  const std::span<const Expression> parts = children(node);
  const Expression separator = parts[1];
  const auto add = [&] { return add_position(gap.loop); };
  std::uint32_t first = add(), later = add();
  connect(gap.from, first);
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const Expression member = parts[i];
    const auto times = builder_.times_[node.min + i - 2];
    const std::uint32_t next_first = add(), next_later = add();
    if (analysis_.is_productive(member)) {
      const std::uint32_t begin = add(), end = add(), behind = add();
      connect(first, begin);
      connect(later, behind);
      gaps_.push_back({separator, behind, begin, gap.loop});
      gaps_.push_back({member, begin, end, gap.loop});
      connect(end, next_later);
      if (times == GrammarBuilder::Times::any) connect(end, behind);
    }
    if (times != GrammarBuilder::Times::once) {
      connect(first, next_first);
      connect(later, next_later);
    }
    first = next_first;
    later = next_later;
  }
  if (node.max != 0) connect(first, gap.to);
  connect(later, gap.to);
}

// The positions that can be reached without a letter; only those that have one, or that end the
// rule (they have nothing at all).
GrammarCompiler::Subset GrammarCompiler::closure(const Subset& positions) {
  ++stamp_;
  Subset open = positions, found;
  while (!open.empty()) {
    const std::uint32_t position = open.back();
    open.pop_back();
    if (stamps_[position] == stamp_) continue;
    stamps_[position] = stamp_;
    std::uint32_t edge = positions_[position].first_edge;
    work(2);
    if (edge == Grammar::none) found.push_back(position);
    for (; edge != Grammar::none; edge = edges_[edge].next) open.push_back(edges_[edge].target);
  }
  std::ranges::sort(found);
  return found;
}

GrammarCompiler::Moves GrammarCompiler::moves_of(const Subset& subset) {
  Moves moves;
  moves.by_class.resize(grammar_.classes);
  for (const std::uint32_t position : subset) {
    const Position& at = positions_[position];
    if (at.letter == Letter::byte) {
      moves.by_class[grammar_.byte_class[at.value]].push_back(at.target);
    } else if (at.letter == Letter::set) {
      for (std::uint32_t c = 0; c < grammar_.classes; ++c) {
        if (class_sets_[at.value][c]) moves.by_class[c].push_back(at.target);
      }
      work(grammar_.classes);
    } else if (at.letter != Letter::none) {
      moves.by_letter[{at.letter, at.value}].push_back(at.target);
    }
  }
  work(grammar_.classes / 4 + 4 * subset.size());
  return moves;
}

void GrammarCompiler::add_state(const Subset& subset, std::uint32_t end) {
  const std::size_t states = grammar_.states.size() + 1;
  const std::size_t table_bytes = states * grammar_.classes * sizeof(Grammar::Step);
  if (states > states_max || table_bytes > table_bytes_max) {
    throw GrammarError(
        fmt::format("the grammar is too large: its tables need more than {} states or {} bytes",
                    states_max, table_bytes_max));
  }
  budget_.hold(CompileBudget::growth *
               (grammar_.classes * sizeof(Grammar::Step) + sizeof(Grammar::State)));
  Grammar::State state;
  state.accepts = std::ranges::binary_search(subset, end);
  for (const std::uint32_t position : subset) {
    if (positions_[position].loop != Grammar::none) state.loop = positions_[position].loop;
  }
  grammar_.states.push_back(state);
  grammar_.steps.resize(states * grammar_.classes);
}

void GrammarCompiler::fill_state(std::uint32_t state, const Moves& moves, SubsetTable& table) {
  bool has_bytes = false;
  for (std::uint32_t byte_class = 0; byte_class < grammar_.classes; ++byte_class) {
    if (moves.by_class[byte_class].empty()) continue;
    has_bytes = true;
    const std::uint32_t target = table.state_of(moves.by_class[byte_class]);
    grammar_.steps[std::size_t{state} * grammar_.classes + byte_class] =
        Grammar::Step::to(target, Grammar::Guard::nothing);
  }
  std::vector<Grammar::Call> calls;
  std::vector<Grammar::LoopEnd> ends;
  for (const auto& [letter, targets] : moves.by_letter) {
    const std::uint32_t target = table.state_of(targets);
    if (letter.first == Letter::call) {
      calls.push_back({letter.second, target});
    } else {
      const bool enters = letter.first == Letter::enter;
      ends.push_back(
          {enters ? Grammar::Guard::enter : Grammar::Guard::check, letter.second, target});
    }
  }
  budget_.hold(CompileBudget::growth *
               (calls.size() * sizeof(Grammar::Call) + ends.size() * sizeof(Grammar::LoopEnd)));
  Grammar::State& filled = grammar_.states[state];
  filled.has_bytes = has_bytes;
  filled.calls_begin = static_cast<std::uint32_t>(grammar_.calls.size());
  grammar_.calls.insert(grammar_.calls.end(), calls.begin(), calls.end());
  filled.calls_end = static_cast<std::uint32_t>(grammar_.calls.size());
  filled.ends_begin = static_cast<std::uint32_t>(grammar_.loop_ends.size());
  grammar_.loop_ends.insert(grammar_.loop_ends.end(), ends.begin(), ends.end());
  filled.ends_end = static_cast<std::uint32_t>(grammar_.loop_ends.size());
}

void GrammarCompiler::compile_rule(Rule rule) {
  positions_ = {};
  edges_ = {};
  stamps_ = {};
  budget_.release(std::exchange(rule_bytes_, 0));
  const std::uint32_t begin = add_position(Grammar::none), end = add_position(Grammar::none);
  gaps_.push_back({builder_.rules_[rule].body, begin, end, Grammar::none});
  while (!gaps_.empty()) {
    const Gap gap = gaps_.back();
    gaps_.pop_back();
    fill(gap);
  }
  stamps_.assign(positions_.size(), 0);
  stamp_ = 0;
  SubsetTable table(*this, end);
  starts_[rule] = table.state_of({begin});
  table.fill_all();
}

// Where only bytes follow the ends of a loop, and no byte follows both, the bytes lead there at
// once. Then a text in which characters are counted has one state at a time instead of three.
void GrammarCompiler::fuse_loop_ends(std::uint32_t state) {
  Grammar::State& at = grammar_.states[state];
  const auto ends =
      std::span(grammar_.loop_ends).subspan(at.ends_begin, at.ends_end - at.ends_begin);
  if (ends.empty() || at.accepts || at.calls_begin != at.calls_end) return;
  Grammar::Step* row = grammar_.steps.data() + std::size_t{state} * grammar_.classes;
  std::vector<Grammar::Step> fused(row, row + grammar_.classes);
  for (const Grammar::LoopEnd& loop_end : ends) {
    if (loop_end.loop != at.loop || !grammar_.states[loop_end.target].only_bytes()) return;
    const Grammar::Step* from =
        grammar_.steps.data() + std::size_t{loop_end.target} * grammar_.classes;
    for (std::uint32_t c = 0; c < grammar_.classes; ++c) {
      if (!from[c].is_allowed()) continue;
      if (from[c].guard() != Grammar::Guard::nothing || fused[c].is_allowed()) return;
      fused[c] = Grammar::Step::to(from[c].target(), loop_end.guard);
    }
  }
  std::ranges::copy(fused, row);
  at.ends_end = at.ends_begin;
  at.has_bytes = true;
}

// Three states that read up to two newlines and then call the root.
std::uint32_t GrammarCompiler::add_lead() {
  constexpr std::uint32_t newlines = 2;
  const auto end = static_cast<std::uint32_t>(grammar_.states.size());
  add_state({}, 0);
  grammar_.states[end].accepts = true;
  for (std::uint32_t i = 0; i <= newlines; ++i) {
    const auto state = static_cast<std::uint32_t>(grammar_.states.size());
    add_state({}, 0);
    Grammar::State& added = grammar_.states[state];
    added.calls_begin = static_cast<std::uint32_t>(grammar_.calls.size());
    grammar_.calls.push_back({root_, end});
    added.calls_end = added.calls_begin + 1;
    if (i == 0) continue;
    added.has_bytes = true;
    const std::size_t row = std::size_t{state} * grammar_.classes;
    grammar_.steps[row + grammar_.byte_class['\n']] =
        Grammar::Step::to(state - 1, Grammar::Guard::nothing);
  }
  return end + 1 + newlines;
}

Grammar GrammarCompiler::compile() {
  divide_bytes();
  const std::size_t rules = builder_.rules_.size();
  budget_.hold(rules * sizeof(starts_[0]));
  starts_.assign(rules, Grammar::none);
  for (Rule rule = 0; rule < rules; ++rule) {
    if (analysis_.is_reachable(rule)) compile_rule(rule);
  }
  grammar_.start_after_thought = add_lead();
  for (Grammar::Call& call : grammar_.calls) call.start = starts_[call.start];
  work(grammar_.steps.size() / 4);
  for (std::uint32_t i = 0; i < grammar_.states.size(); ++i) fuse_loop_ends(i);
  grammar_.start = starts_[root_];
  grammar_.steps.shrink_to_fit();
  grammar_.states.shrink_to_fit();
  return std::move(grammar_);
}

}  // namespace sluice::constrain
