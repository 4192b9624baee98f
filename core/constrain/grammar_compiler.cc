#include "core/constrain/grammar_compiler.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace sluice::constrain {

// What a subset leads to: target positions by letter.
struct GrammarCompiler::Moves {
  std::map<std::uint32_t, Subset> by_class;
  std::map<std::pair<Letter, std::uint32_t>, Subset> by_letter;
};

// The states that were made of subsets of one rule, and those that are still to be filled.
class GrammarCompiler::SubsetTable {
 public:
  SubsetTable(GrammarCompiler& compiler, std::uint32_t end) : compiler_(compiler), end_(end) {}

  // The state for the closure of these positions.
  std::uint32_t state_of(const Subset& targets) {
    const auto known = by_targets_.find(targets);
    if (known != by_targets_.end()) return known->second;
    Subset subset = compiler_.closure(targets);
    const auto next = static_cast<std::uint32_t>(compiler_.grammar_.states.size());
    const auto [at, is_new] = by_subset_.try_emplace(subset, next);
    if (is_new) {
      compiler_.add_state(subset, end_);
      open_.push_back({next, std::move(subset)});
    }
    by_targets_.emplace(targets, at->second);
    return at->second;
  }

  void fill_all() {
    while (!open_.empty()) {
      const auto [state, subset] = std::move(open_.back());
      open_.pop_back();
      compiler_.fill_state(state, compiler_.moves_of(subset), *this);
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
  GrammarCompiler& compiler_;
  std::uint32_t end_;
  std::unordered_map<Subset, std::uint32_t, Hash> by_targets_, by_subset_;
  std::vector<std::pair<std::uint32_t, Subset>> open_;
};

void GrammarCompiler::work(std::size_t steps) {
  work_ += steps;
  if (work_ > builder_.limits_.work_max) {
    throw GrammarError("the grammar takes too long to compile: make it smaller");
  }
}

std::span<const Expression> GrammarCompiler::children(const Node& node) const {
  if (node.kind < Kind::sequence) return {};
  return std::span(builder_.children_).subspan(node.begin, node.end - node.begin);
}

// Finds the expressions with a property. A sequence has the property when all its parts have it, a
// choice when one of them has it, and a repetition when its part has it or may be left out.
// `of_bytes` and `of_texts` say whether bytes and literals that are not empty have it.
GrammarCompiler::Flags GrammarCompiler::fixpoint(bool of_bytes, bool of_texts) const {
  const std::vector<Node>& nodes = builder_.nodes_;
  std::vector<std::vector<Expression>> users(nodes.size());  // of an expression, with repetition
  std::vector<std::vector<Expression>> calls(builder_.rules_.size());
  std::vector<std::uint32_t> missing(nodes.size(), 1);  // parts that do not have it yet
  std::vector<std::vector<Rule>> bodies(nodes.size());
  for (Rule rule = 0; rule < builder_.rules_.size(); ++rule) {
    bodies[builder_.rules_[rule].body].push_back(rule);
  }
  Flags has(nodes.size(), false);
  std::vector<Expression> open;
  const auto take = [&](Expression expression) {
    if (has[expression]) return;
    has[expression] = true;
    open.push_back(expression);
  };
  for (Expression i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.kind == Kind::members) {
      users[builder_.children_[node.begin]].push_back(i);  // the members that must be there
    } else {
      for (const Expression child : children(node)) users[child].push_back(i);
    }
    if (node.kind == Kind::call) calls[node.begin].push_back(i);
    if (node.kind == Kind::sequence) missing[i] = node.end - node.begin;
    const bool is_leaf_with = (node.kind == Kind::bytes && of_bytes) ||
                              (node.kind == Kind::literal && (of_texts || node.begin == node.end));
    const bool may_be_left_out = node.kind == Kind::repeat && node.min == 0;
    const bool is_empty = node.kind == Kind::sequence && node.begin == node.end;
    if (is_leaf_with || may_be_left_out || is_empty) take(i);
  }
  while (!open.empty()) {
    const Expression expression = open.back();
    open.pop_back();
    for (const Expression user : users[expression]) {
      if (--missing[user] == 0 || nodes[user].kind != Kind::sequence) take(user);
    }
    for (const Rule rule : bodies[expression]) {
      for (const Expression call : calls[rule]) take(call);
    }
  }
  return has;
}

void GrammarCompiler::find_reachable(Rule root) {
  reachable_.assign(builder_.rules_.size(), false);
  Flags seen(builder_.nodes_.size(), false);
  std::vector<Expression> open;
  const auto reach = [&](Rule rule) {
    if (reachable_[rule]) return;
    reachable_[rule] = true;
    open.push_back(builder_.rules_[rule].body);
  };
  reach(root);
  while (!open.empty()) {
    const Expression expression = open.back();
    open.pop_back();
    if (seen[expression] || !productive_[expression]) continue;
    seen[expression] = true;
    const Node& node = builder_.nodes_[expression];
    if (node.kind == Kind::call) reach(node.begin);
    for (const Expression child : children(node)) open.push_back(child);
  }
}

// An empty round of a counted loop would be counted without a byte being read.
void GrammarCompiler::check_loops() const {
  for (const Node& node : builder_.nodes_) {
    if (node.kind != Kind::repeat || !nullable_[builder_.children_[node.begin]]) continue;
    if (!builder_.is_counted(builder_.nodes_[builder_.children_[node.begin]], node.min, node.max)) {
      continue;
    }
    throw GrammarError(fmt::format(
        "a repetition of {} or more rounds has a part that may be empty: make that part "
        "match at least one byte",
        std::max(node.min, 2U)));
  }
}

// The rules that may be called before a byte of this one is read.
std::vector<GrammarCompiler::Rule> GrammarCompiler::rules_in_front(Rule rule) const {
  std::set<Rule> found;
  std::set<Expression> seen;
  std::vector<Expression> open = {builder_.rules_[rule].body};
  while (!open.empty()) {
    const Expression expression = open.back();
    open.pop_back();
    if (!productive_[expression] || !seen.insert(expression).second) continue;
    const Node& node = builder_.nodes_[expression];
    if (node.kind == Kind::call) found.insert(node.begin);
    for (const Expression child : children(node)) {
      open.push_back(child);
      if (node.kind == Kind::sequence && !nullable_[child]) break;
    }
  }
  return {found.begin(), found.end()};
}

void GrammarCompiler::check_left_recursion() const {
  enum class Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(builder_.rules_.size(), Mark::fresh);
  struct Visit {
    Rule rule;
    std::vector<Rule> next;
  };
  std::vector<Visit> path;
  const auto visit = [&](Rule rule) {
    marks[rule] = Mark::open;
    path.push_back({rule, rules_in_front(rule)});
  };
  for (Rule root = 0; root < marks.size(); ++root) {
    if (!reachable_[root] || marks[root] != Mark::fresh) continue;
    visit(root);
    while (!path.empty()) {
      Visit& top = path.back();
      if (top.next.empty()) {
        marks[top.rule] = Mark::done;
        path.pop_back();
        continue;
      }
      const Rule next = top.next.back();
      top.next.pop_back();
      if (marks[next] == Mark::open) {
        throw GrammarError(
            fmt::format("the rule \"{}\" calls itself before it reads anything (left recursion): "
                        "write it as a repetition",
                        builder_.rules_[next].name));
      }
      if (marks[next] == Mark::fresh) visit(next);
    }
  }
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
  std::unordered_map<ByteSet, bool> seen;
  for (const ByteSet& set : builder_.sets_) {
    if (seen.try_emplace(set, true).second) divide(set);
  }
  grammar_.classes = static_cast<std::uint32_t>(classes.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (classes[i][byte]) grammar_.byte_class[byte] = static_cast<std::uint8_t>(i);
    }
  }
  class_sets_.reserve(builder_.sets_.size());
  for (const ByteSet& set : builder_.sets_) {
    ByteSet of_classes;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (set[byte]) of_classes.set(grammar_.byte_class[byte]);
    }
    class_sets_.push_back(of_classes);
  }
}

std::uint32_t GrammarCompiler::add_position() {
  if (positions_.size() >= builder_.limits_.positions_max) {
    throw GrammarError(fmt::format("the grammar is too large: a rule has more than {} positions",
                                   builder_.limits_.positions_max));
  }
  work(1);
  positions_.push_back({.loop = loop_});
  return static_cast<std::uint32_t>(positions_.size() - 1);
}

void GrammarCompiler::connect(std::uint32_t from, std::uint32_t to) {
  positions_[from].epsilon.push_back(to);
}

std::uint32_t GrammarCompiler::label(std::uint32_t at, Letter letter, std::uint32_t value) {
  const std::uint32_t target = add_position();
  positions_[at].letter = letter;
  positions_[at].value = value;
  positions_[at].target = target;
  return target;
}

// Adds the expression behind the position `at`, from which nothing goes out yet. Returns the
// position at its end, from which nothing goes out either.
std::uint32_t GrammarCompiler::build(Expression expression, std::uint32_t at) {
  const Node& node = builder_.nodes_[expression];
  switch (node.kind) {
    case Kind::nothing:
      break;  // is not productive, so never built
    case Kind::literal:
      for (std::uint32_t i = node.begin; i < node.end; ++i) {
        at = label(at, Letter::byte, static_cast<unsigned char>(builder_.literals_[i]));
      }
      break;
    case Kind::bytes:
      return label(at, Letter::set, node.begin);
    case Kind::call:
      return label(at, Letter::call, node.begin);
    case Kind::sequence:
      for (const Expression child : children(node)) at = build(child, at);
      break;
    case Kind::choice:
      return build_choice(node, at);
    case Kind::repeat:
      return build_repeat(node, at);
    case Kind::members:
      return build_members(node, at);
  }
  return at;
}

std::uint32_t GrammarCompiler::build_choice(const Node& node, std::uint32_t at) {
  const std::uint32_t end = add_position();
  for (const Expression child : children(node)) {
    if (!productive_[child]) continue;
    const std::uint32_t begin = add_position();
    connect(at, begin);
    connect(build(child, begin), end);
  }
  return end;
}

std::uint32_t GrammarCompiler::build_repeat(const Node& node, std::uint32_t at) {
  const Expression part = builder_.children_[node.begin];
  if (!productive_[part]) return at;  // it can only be left out
  if (builder_.is_counted(builder_.nodes_[part], node.min, node.max)) {
    return build_counted(node, at);
  }
  for (std::uint32_t i = 0; i < node.min; ++i) at = build(part, at);
  if (node.max == Grammar::unlimited) return build_star(part, at);
  const std::uint32_t end = add_position();
  for (std::uint32_t i = node.min; i < node.max; ++i) {
    connect(at, end);
    const std::uint32_t begin = add_position();
    connect(at, begin);
    at = build(part, begin);
  }
  connect(at, end);
  return end;
}

// Two chains of positions: in front of each member with nothing before it, and with something.
std::uint32_t GrammarCompiler::build_members(const Node& node, std::uint32_t at) {
  const std::span<const Expression> parts = children(node);
  const Expression separator = parts[1];
  std::uint32_t first = add_position(), later = add_position();
  connect(at, first);
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const Expression member = parts[i];
    const auto times = builder_.times_[node.min + i - 2];
    const std::uint32_t next_first = add_position(), next_later = add_position();
    if (productive_[member]) {
      const std::uint32_t begin = add_position(), behind = add_position();
      connect(first, begin);
      connect(later, behind);
      connect(build(separator, behind), begin);
      const std::uint32_t end = build(member, begin);
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
  const std::uint32_t end = add_position();
  connect(first, end);
  connect(later, end);
  return end;
}

std::uint32_t GrammarCompiler::build_star(Expression part, std::uint32_t at) {
  const std::uint32_t head = add_position(), begin = add_position(), end = add_position();
  connect(at, head);
  connect(head, begin);
  connect(build(part, begin), head);
  connect(head, end);
  return end;
}

std::uint32_t GrammarCompiler::build_counted(const Node& node, std::uint32_t at) {
  const auto loop = static_cast<std::uint32_t>(grammar_.loops.size());
  grammar_.loops.push_back({node.min, node.max});
  const std::uint32_t outer = std::exchange(loop_, loop);
  const std::uint32_t head = add_position(), enter = add_position(), check = add_position();
  connect(at, head);
  connect(head, enter);
  connect(head, check);
  const std::uint32_t begin = label(enter, Letter::enter, loop);
  connect(build(builder_.children_[node.begin], begin), head);
  loop_ = outer;
  return label(check, Letter::check, loop);
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
    const Position& at = positions_[position];
    work(1 + at.epsilon.size());
    if (at.epsilon.empty()) found.push_back(position);
    open.insert(open.end(), at.epsilon.begin(), at.epsilon.end());
  }
  std::ranges::sort(found);
  return found;
}

GrammarCompiler::Moves GrammarCompiler::moves_of(const Subset& subset) {
  Moves moves;
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
  work(4 * subset.size());
  return moves;
}

void GrammarCompiler::add_state(const Subset& subset, std::uint32_t end) {
  const BuildLimits& limits = builder_.limits_;
  const std::size_t states = grammar_.states.size() + 1;
  const std::size_t table_bytes = states * grammar_.classes * sizeof(Grammar::Step);
  if (states > limits.states_max || table_bytes > limits.table_bytes_max) {
    throw GrammarError(
        fmt::format("the grammar is too large: its tables need more than {} states or {} bytes",
                    limits.states_max, limits.table_bytes_max));
  }
  Grammar::State state;
  state.accepts = std::ranges::binary_search(subset, end);
  for (const std::uint32_t position : subset) {
    if (positions_[position].loop != Grammar::none) state.loop = positions_[position].loop;
  }
  grammar_.states.push_back(state);
  grammar_.steps.resize(states * grammar_.classes);
}

void GrammarCompiler::fill_state(std::uint32_t state, const Moves& moves, SubsetTable& table) {
  for (const auto& [byte_class, targets] : moves.by_class) {
    const std::uint32_t target = table.state_of(targets);
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
  Grammar::State& filled = grammar_.states[state];
  filled.has_bytes = !moves.by_class.empty();
  filled.calls_begin = static_cast<std::uint32_t>(grammar_.calls.size());
  grammar_.calls.insert(grammar_.calls.end(), calls.begin(), calls.end());
  filled.calls_end = static_cast<std::uint32_t>(grammar_.calls.size());
  filled.ends_begin = static_cast<std::uint32_t>(grammar_.loop_ends.size());
  grammar_.loop_ends.insert(grammar_.loop_ends.end(), ends.begin(), ends.end());
  filled.ends_end = static_cast<std::uint32_t>(grammar_.loop_ends.size());
}

void GrammarCompiler::compile_rule(Rule rule) {
  positions_.clear();
  const std::uint32_t begin = add_position();
  const std::uint32_t end = build(builder_.rules_[rule].body, begin);
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
std::uint32_t GrammarCompiler::add_lead(Rule root) {
  constexpr std::uint32_t newlines = 2;
  const auto end = static_cast<std::uint32_t>(grammar_.states.size());
  add_state({}, 0);
  grammar_.states[end].accepts = true;
  for (std::uint32_t i = 0; i <= newlines; ++i) {
    const auto state = static_cast<std::uint32_t>(grammar_.states.size());
    add_state({}, 0);
    Grammar::State& added = grammar_.states[state];
    added.calls_begin = static_cast<std::uint32_t>(grammar_.calls.size());
    grammar_.calls.push_back({root, end});
    added.calls_end = added.calls_begin + 1;
    if (i == 0) continue;
    added.has_bytes = true;
    const std::size_t row = std::size_t{state} * grammar_.classes;
    grammar_.steps[row + grammar_.byte_class['\n']] =
        Grammar::Step::to(state - 1, Grammar::Guard::nothing);
  }
  return end + 1 + newlines;
}

Grammar GrammarCompiler::compile(Rule root) {
  productive_ = fixpoint(true, true);
  nullable_ = fixpoint(false, false);
  if (!productive_[builder_.rules_[root].body]) {
    throw GrammarError(
        fmt::format("no text can ever match \"{}\": each of its ways contains itself or something "
                    "impossible",
                    builder_.rules_[root].name));
  }
  find_reachable(root);
  check_loops();
  check_left_recursion();
  divide_bytes();
  starts_.assign(builder_.rules_.size(), Grammar::none);
  for (Rule rule = 0; rule < starts_.size(); ++rule) {
    if (reachable_[rule]) compile_rule(rule);
  }
  grammar_.start_after_thought = add_lead(root);
  for (Grammar::Call& call : grammar_.calls) call.start = starts_[call.start];
  for (std::uint32_t i = 0; i < grammar_.states.size(); ++i) fuse_loop_ends(i);
  grammar_.start = starts_[root];
  grammar_.steps.shrink_to_fit();
  grammar_.states.shrink_to_fit();
  return std::move(grammar_);
}

}  // namespace sluice::constrain
