#include "core/constrain/grammar_analysis.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace sluice::constrain {
namespace {

constexpr std::uint32_t none = Grammar::none;

}  // namespace

GrammarAnalysis::GrammarAnalysis(const GrammarBuilder& builder, Rule root) : builder_(builder) {
  const std::size_t nodes = builder.nodes_.size();
  CompileBudget& budget = *builder.budget_;
  budget.spend(8 * (nodes + builder.children_.size()));
  // The lists of users, the numbers of parts, the lists that are still open, and marks.
  const HeldBytes held(budget,
                       nodes * 40 + builder.children_.size() * 8 + builder.rules_.size() * 8);
  {
    const Users users = find_users();
    productive_ = fixpoint(users, true, true);
    nullable_ = fixpoint(users, false, false);
  }
  if (!productive_[builder.rules_[root].body]) {
    throw GrammarError(
        fmt::format("no text can ever match \"{}\": each of its ways contains itself or something "
                    "impossible",
                    builder.rules_[innermost_impossible(root)].name));
  }
  find_reachable(root);
  check_loops();
  check_left_recursion();
}

std::span<const Expression> GrammarAnalysis::children(const Node& node) const {
  if (node.kind < Kind::sequence) return {};
  return std::span(builder_.children_).subspan(node.begin, node.end - node.begin);
}

// Of members, only what has to be possible (GrammarBuilder::members).
std::span<const Expression> GrammarAnalysis::needed_parts(const Node& node) const {
  const std::span<const Expression> parts = children(node);
  return node.kind == Kind::members ? parts.first(1) : parts;
}

GrammarAnalysis::Users GrammarAnalysis::find_users() const {
  const std::vector<Node>& nodes = builder_.nodes_;
  const std::size_t rules = builder_.rules_.size();
  Users users;
  users.begin.assign(nodes.size() + 1, 0);
  users.next_call.assign(nodes.size(), none);
  users.first_rule.assign(nodes.size(), none);
  users.first_call.assign(rules, none);
  users.next_rule.assign(rules, none);
  for (Rule rule = 0; rule < rules; ++rule) {
    Rule& first = users.first_rule[builder_.rules_[rule].body];
    users.next_rule[rule] = first;
    first = rule;
  }
  for (Expression i = 0; i < nodes.size(); ++i) {
    for (const Expression part : needed_parts(nodes[i])) ++users.begin[part + 1];
    if (nodes[i].kind != Kind::call) continue;
    Expression& first = users.first_call[nodes[i].begin];
    users.next_call[i] = first;
    first = i;
  }
  std::partial_sum(users.begin.begin(), users.begin.end(), users.begin.begin());
  users.list.resize(users.begin.back());
  std::vector<std::uint32_t> next(users.begin.begin(), users.begin.end() - 1);
  for (Expression i = 0; i < nodes.size(); ++i) {
    for (const Expression part : needed_parts(nodes[i])) users.list[next[part]++] = i;
  }
  return users;
}

// Finds the expressions with a property. A sequence has the property when all its parts have it, a
// choice when one of them has it, and a repetition when its part has it or may be left out.
// `of_bytes` and `of_texts` say whether bytes and literals that are not empty have it.
GrammarAnalysis::Flags GrammarAnalysis::fixpoint(const Users& users, bool of_bytes,
                                                 bool of_texts) const {
  const std::vector<Node>& nodes = builder_.nodes_;
  std::vector<std::uint32_t> missing(nodes.size(), 1);  // parts that do not have it yet
  Flags has(nodes.size(), false);
  std::vector<Expression> open;
  open.reserve(nodes.size());
  const auto take = [&](Expression expression) {
    if (has[expression]) return;
    has[expression] = true;
    open.push_back(expression);
  };
  for (Expression i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
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
    for (std::uint32_t i = users.begin[expression]; i < users.begin[expression + 1]; ++i) {
      const Expression user = users.list[i];
      if (--missing[user] == 0 || nodes[user].kind != Kind::sequence) take(user);
    }
    for (Rule rule = users.first_rule[expression]; rule != none; rule = users.next_rule[rule]) {
      for (Expression call = users.first_call[rule]; call != none; call = users.next_call[call]) {
        take(call);
      }
    }
  }
  return has;
}

// Of the rules that make an impossible one so: goes into the first impossible part of each body.
GrammarAnalysis::Rule GrammarAnalysis::innermost_impossible(Rule root) const {
  Flags seen(builder_.rules_.size(), false);
  Rule rule = root;
  seen[rule] = true;
  for (Expression at = builder_.rules_[rule].body;;) {
    const Node& node = builder_.nodes_[at];
    if (node.kind == Kind::call) {
      if (seen[node.begin]) return rule;
      rule = node.begin;
      seen[rule] = true;
      at = builder_.rules_[rule].body;
      continue;
    }
    const std::span<const Expression> parts = needed_parts(node);
    const auto part = std::ranges::find_if(parts, [&](Expression i) { return !productive_[i]; });
    if (part == parts.end()) return rule;
    at = *part;
  }
}

void GrammarAnalysis::find_reachable(Rule root) {
  reachable_.assign(builder_.rules_.size(), false);
  Flags seen(builder_.nodes_.size(), false);
  std::vector<Expression> open;
  const auto see = [&](Expression expression) {
    if (seen[expression] || !productive_[expression]) return;
    seen[expression] = true;
    open.push_back(expression);
  };
  const auto reach = [&](Rule rule) {
    reachable_[rule] = true;
    see(builder_.rules_[rule].body);
  };
  reach(root);
  while (!open.empty()) {
    const Node& node = builder_.nodes_[open.back()];
    open.pop_back();
    if (node.kind == Kind::call) reach(node.begin);
    for (const Expression child : children(node)) see(child);
  }
}

// An empty round of a counted loop would be counted without a byte being read.
void GrammarAnalysis::check_loops() const {
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

// Whether nothing needs to be read in front of this part of an expression.
bool GrammarAnalysis::comes_first(const Node& node, std::size_t part) const {
  return node.kind != Kind::sequence || part == 0 || nullable_[children(node)[part - 1]];
}

// Follows what comes first in each expression, through calls too. A way that comes back to an
// expression of its own is one that reads nothing.
void GrammarAnalysis::check_left_recursion() const {
  enum class Mark : std::uint8_t { fresh, open, done };
  struct Visit {
    Expression expression;
    std::uint32_t part;  // that is looked at next
  };
  const std::vector<Node>& nodes = builder_.nodes_;
  std::vector<Mark> marks(nodes.size(), Mark::fresh);
  std::vector<Visit> path;
  const auto refuse = [&] {
    const auto call = std::ranges::find_if(path.rbegin(), path.rend(), [&](const Visit& visit) {
      return nodes[visit.expression].kind == Kind::call;
    });
    throw GrammarError(
        fmt::format("the rule \"{}\" calls itself before it reads anything (left recursion): "
                    "write it as a repetition",
                    builder_.rules_[nodes[call->expression].begin].name));
  };
  const auto visit = [&](Expression expression) {
    if (!productive_[expression] || marks[expression] == Mark::done) return;
    if (marks[expression] == Mark::open) refuse();
    marks[expression] = Mark::open;
    path.push_back({expression, 0});
  };
  for (Rule root = 0; root < builder_.rules_.size(); ++root) {
    if (reachable_[root]) visit(builder_.rules_[root].body);
    while (!path.empty()) {
      Visit& top = path.back();
      const Node& node = nodes[top.expression];
      const std::uint32_t part = top.part++;
      const std::span<const Expression> parts = children(node);
      if (node.kind == Kind::call && part == 0) {
        visit(builder_.rules_[node.begin].body);
      } else if (part < parts.size() && comes_first(node, part)) {
        visit(parts[part]);
      } else {
        marks[top.expression] = Mark::done;
        path.pop_back();
      }
    }
  }
}

}  // namespace sluice::constrain
