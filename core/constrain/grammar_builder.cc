#include "core/constrain/grammar_builder.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "core/constrain/characters.h"
#include "core/constrain/grammar_compiler.h"
#include "core/text/utf8.h"

namespace sluice::constrain {
namespace {

// A repetition of at most so many positions is written out; a larger one is counted.
constexpr std::uint64_t expanded_positions_max = 64;

constexpr std::size_t name_bytes_max = 200;  // of a rule, in messages

std::uint32_t saturated(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max() / 2));
}

// Calls `use(first, last)` with the encodings of ranges in which each byte ranges by itself, and
// which together are the characters of `range`.
template <typename Use>
void split_utf8(CharacterRange range, const Use& use) {
  constexpr std::array<CharacterRange, 5> same_length = {
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}}};
  std::vector<CharacterRange> open;
  for (const CharacterRange& part : same_length) {
    const char32_t first = std::max(range.first, part.first);
    const char32_t last = std::min(range.last, part.last);
    if (first <= last) open.push_back({first, last});
  }
  while (!open.empty()) {
    const CharacterRange part = open.back();
    open.pop_back();
    const auto [first, last] = part;
    bool is_split = false;
    for (unsigned tail = 1; tail < utf8::encode(first).size() && !is_split; ++tail) {
      const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
      if ((first & ~mask) == (last & ~mask)) continue;
      if ((first & mask) != 0) {
        open.push_back({first, first | mask});
        open.push_back({(first | mask) + 1, last});
        is_split = true;
      } else if ((last & mask) != mask) {
        open.push_back({first, (last & ~mask) - 1});
        open.push_back({last & ~mask, last});
        is_split = true;
      }
    }
    if (!is_split) use(utf8::encode(first), utf8::encode(last));
  }
}

ByteSet byte_range(char first, char last) {
  ByteSet set;
  const auto end = static_cast<unsigned>(static_cast<unsigned char>(last)) + 1;
  for (unsigned byte = static_cast<unsigned char>(first); byte < end; ++byte) set.set(byte);
  return set;
}

}  // namespace

Expression GrammarBuilder::add(Node node) {
  budget_->hold(CompileBudget::growth * sizeof(Node));
  budget_->spend(4);
  nodes_.push_back(node);
  return static_cast<Expression>(nodes_.size() - 1);
}

Expression GrammarBuilder::empty() {
  return literal("");
}

Expression GrammarBuilder::nothing() {
  return add({.kind = Kind::nothing});
}

Expression GrammarBuilder::literal(std::string_view bytes) {
  budget_->hold(CompileBudget::growth * bytes.size());
  budget_->spend(bytes.size());
  const auto begin = static_cast<std::uint32_t>(literals_.size());
  literals_ += bytes;
  return add({.kind = Kind::literal,
              .begin = begin,
              .end = static_cast<std::uint32_t>(literals_.size()),
              .size = saturated(bytes.size() + 1)});
}

Expression GrammarBuilder::bytes(const ByteSet& set) {
  if (set.none()) return nothing();
  const auto next = static_cast<std::uint32_t>(sets_.size());
  const auto [number, is_new] = set_numbers_.try_emplace(set, next);
  if (is_new) {
    budget_->hold(5 * CompileBudget::growth * sizeof(ByteSet));
    sets_.push_back(set);
  }
  return add({.kind = Kind::bytes, .begin = number->second, .size = 2});
}

Expression GrammarBuilder::characters(std::span<const CharacterRange> ranges) {
  ByteSet single;  // one byte: ASCII
  std::vector<Expression> longer;
  for (const CharacterRange& range : ranges) {
    split_utf8(range, [&](const std::string& first, const std::string& last) {
      if (first.size() == 1) {
        single |= byte_range(first[0], last[0]);
        return;
      }
      std::vector<Expression> parts;
      for (std::size_t i = 0; i < first.size(); ++i) {
        parts.push_back(bytes(byte_range(first[i], last[i])));
      }
      longer.push_back(sequence(std::move(parts)));
    });
  }
  if (longer.empty()) return bytes(single);
  if (single.any()) longer.push_back(bytes(single));
  return choice(std::move(longer));
}

Expression GrammarBuilder::add_parts(Kind kind, const std::vector<Expression>& parts) {
  budget_->hold(CompileBudget::growth * parts.size() * sizeof(Expression));
  budget_->spend(parts.size());
  Node node{.kind = kind, .begin = static_cast<std::uint32_t>(children_.size())};
  std::uint64_t size = 2;
  for (const Expression part : parts) {
    size += nodes_[part].size;
    node.has_counter = node.has_counter || nodes_[part].has_counter;
  }
  children_.insert(children_.end(), parts.begin(), parts.end());
  node.end = static_cast<std::uint32_t>(children_.size());
  node.size = saturated(size);
  return add(node);
}

Expression GrammarBuilder::sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return parts.front();
  return add_parts(Kind::sequence, parts);
}

Expression GrammarBuilder::choice(std::vector<Expression> parts) {
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts.front();
  return add_parts(Kind::choice, parts);
}

bool GrammarBuilder::is_counted(const Node& part, std::uint32_t min, std::uint32_t max) const {
  const std::uint64_t copies = max == unlimited ? std::uint64_t{min} + 1 : max;
  if (copies <= 1) return false;
  return part.has_counter || copies * part.size > expanded_positions_max;
}

// Rounds can be counted in one loop of a rule at a time, so a loop within a counted one becomes a
// rule of its own.
Expression GrammarBuilder::repeat(Expression part, std::uint32_t min, std::uint32_t max) {
  if (max < min) return nothing();
  if (max == 0) return empty();
  if (min == 1 && max == 1) return part;
  const bool counts = is_counted(nodes_[part], min, max);
  if (counts && nodes_[part].has_counter) {
    const Rule inner = add_rule("a part that is repeated");
    define(inner, part);
    part = call(inner);
  }
  const std::uint64_t copies = max == unlimited ? std::uint64_t{min} + 1 : max;
  Node node{.kind = Kind::repeat,
            .has_counter = counts || nodes_[part].has_counter,
            .begin = static_cast<std::uint32_t>(children_.size()),
            .min = min,
            .max = max,
            .size = saturated((counts ? 1 : copies) * nodes_[part].size + 4)};
  budget_->hold(CompileBudget::growth * sizeof(Expression));
  children_.push_back(part);
  node.end = node.begin + 1;
  return add(node);
}

Expression GrammarBuilder::call(Rule rule) {
  return add({.kind = Kind::call, .begin = rule, .size = 2});
}

// In front of its parts stands what they need: all that have to be there, or else, if one has to
// be, any of them.
Expression GrammarBuilder::members(const std::vector<Member>& members, Expression separator,
                                   bool is_some) {
  std::vector<Expression> needed, parts = {empty(), separator};
  const auto times_begin = static_cast<std::uint32_t>(times_.size());
  budget_->hold(CompileBudget::growth * members.size() * sizeof(Times));
  for (const Member& member : members) {
    if (member.times == Times::once) needed.push_back(member.expression);
    parts.push_back(member.expression);
    times_.push_back(member.times);
  }
  const bool may_be_any = is_some && needed.empty();
  parts[0] =
      may_be_any ? choice({parts.begin() + 2, parts.end()}) : add_parts(Kind::sequence, needed);
  const Expression list = add_parts(Kind::members, parts);
  nodes_[list].min = times_begin;
  nodes_[list].max = may_be_any ? 0 : unlimited;
  return list;
}

GrammarBuilder::Rule GrammarBuilder::add_rule(std::string name) {
  name.resize(std::min(name.size(), name_bytes_max));
  budget_->hold(CompileBudget::growth * sizeof(RuleBody) + name.size());
  rules_.push_back({std::move(name), nothing()});
  return static_cast<Rule>(rules_.size() - 1);
}

void GrammarBuilder::define(Rule rule, Expression body) {
  rules_[rule].body = body;
}

Grammar GrammarBuilder::compile(Rule root) const {
  return GrammarCompiler(*this, root).compile();
}

}  // namespace sluice::constrain
