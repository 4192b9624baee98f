#include "core/constrain/gbnf.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/constrain/characters.h"
#include "core/constrain/grammar_builder.h"
#include "core/text/quoted.h"
#include "core/text/utf8.h"

namespace sluice::constrain {
namespace {

constexpr std::uint32_t gbnf_rounds_max = 1U << 20;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

std::string shown(std::string_view text) {
  return text::printable(text, 80);
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, CompileBudget& budget)
      : text_(text), rest_(text), builder_(budget) {}

  Grammar parse() {
    skip_space(true);
    while (!rest_.empty()) parse_rule();
    for (const auto& [name, use] : rules_) {
      if (use.is_defined) continue;
      throw error_at(use.first_use,
                     fmt::format("the rule \"{}\" is used but not defined", shown(name)));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) throw GrammarError("the grammar has no rule \"root\"");
    return builder_.compile(root->second.rule);
  }

 private:
  struct RuleUse {
    GrammarBuilder::Rule rule;
    std::string_view first_use;  // the text from there on
    bool is_defined = false;
  };

  // `place` is the rest of the text at the place.
  GrammarError error_at(std::string_view place, std::string_view what) const {
    const std::string_view before = text_.substr(0, text_.size() - place.size());
    const auto line = std::ranges::count(before, '\n') + 1;
    const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
    const auto column = std::ranges::count(before.substr(begin), false, utf8::is_continuation);
    return GrammarError(fmt::format("grammar, line {}, column {}: {}", line, column + 1, what));
  }
  GrammarError expected(std::string_view what) const {
    if (rest_.empty()) return error_at(rest_, fmt::format("expected {}, but the text ends", what));
    std::string_view rest = rest_;
    const std::optional<char32_t> found = take_character(rest);
    if (!found) return error_at(rest_, "this is not UTF-8");
    if (*found == '\n') return error_at(rest_, fmt::format("expected {}, but the line ends", what));
    return error_at(rest_, fmt::format("expected {}, found \"{}\"", what,
                                       shown(rest_.substr(0, rest_.size() - rest.size()))));
  }

  void skip_space(bool over_lines) {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }

  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::string take_name() {
    const auto end = std::ranges::find_if_not(rest_, is_name_character);
    std::string name(rest_.begin(), end);
    if (name.empty()) throw expected("the name of a rule");
    rest_.remove_prefix(name.size());
    return name;
  }

  RuleUse& use_of(const std::string& name, std::string_view place) {
    const auto known = rules_.find(name);
    if (known != rules_.end()) return known->second;
    constexpr std::size_t bytes_in_map = 128;
    builder_.budget().hold(bytes_in_map + name.size());
    return rules_.emplace(name, RuleUse{builder_.add_rule(name), place}).first->second;
  }

  void parse_rule() {
    const std::string_view place = rest_;
    const std::string name = take_name();
    RuleUse& use = use_of(name, place);
    if (use.is_defined) {
      throw error_at(place, fmt::format("the rule \"{}\" is already defined", shown(name)));
    }
    use.is_defined = true;
    const GrammarBuilder::Rule rule = use.rule;
    skip_space(false);
    if (!take("::=")) throw expected("\"::=\"");
    skip_space(true);
    builder_.define(rule, parse_choice(0));
    if (!rest_.empty() && !take("\n") && !take("\r\n") && !take("\r")) {
      throw expected("a literal, a class, a group, a name, \"|\" or the end of the rule");
    }
    skip_space(true);
  }

  Expression parse_choice(unsigned depth) {
    std::vector<Expression> parts = {parse_sequence(depth)};
    while (take("|")) {
      skip_space(true);
      parts.push_back(parse_sequence(depth));
    }
    return builder_.choice(std::move(parts));
  }

  Expression parse_sequence(unsigned depth) {
    std::vector<Expression> parts;
    while (std::optional<Expression> item = parse_item(depth)) {
      skip_space(depth > 0);
      while (const auto rounds = parse_rounds()) {
        item = builder_.repeat(*item, rounds->first, rounds->second);
        skip_space(depth > 0);
      }
      parts.push_back(*item);
    }
    return builder_.sequence(std::move(parts));
  }

  // Nothing at the end of a sequence.
  std::optional<Expression> parse_item(unsigned depth) {
    if (rest_.empty()) return std::nullopt;
    const std::string_view place = rest_;
    if (take("\"")) return parse_literal(place);
    if (take("[")) return parse_class(place);
    if (take(".")) return builder_.characters(Ranges{{0, last_character}});
    if (take("(")) {
      if (depth == gbnf_depth_max) {
        throw error_at(place,
                       fmt::format("groups are nested deeper than {} levels", gbnf_depth_max));
      }
      skip_space(true);
      const Expression group = parse_choice(depth + 1);
      if (!take(")")) throw expected("\")\"");
      return group;
    }
    if (rest_[0] == '<' || rest_.starts_with("!<")) {
      throw error_at(place, "tokens in a grammar (<...>) are not supported");
    }
    if (!is_name_character(rest_[0])) return std::nullopt;
    return builder_.call(use_of(take_name(), place).rule);
  }

  char32_t parse_character() {
    if (take("\\")) return parse_escape();
    const std::optional<char32_t> character = take_character(rest_);
    if (!character) throw expected("a character");
    return *character;
  }

  char32_t parse_escape() {
    const std::string_view place = rest_;
    const auto hexadecimal = [&](unsigned digits) {
      const std::optional<char32_t> value = take_hexadecimal(rest_, digits);
      if (!value) throw expected(fmt::format("{} hexadecimal digits", digits));
      if (*value > last_character || is_surrogate(*value)) {
        throw error_at(place, "this is not the number of a character");
      }
      return *value;
    };
    if (take("x")) return hexadecimal(2);
    if (take("u")) return hexadecimal(4);
    if (take("U")) return hexadecimal(8);
    if (take("t")) return '\t';
    if (take("r")) return '\r';
    if (take("n")) return '\n';
    for (const char plain : {'\\', '"', '[', ']', '-', '^'}) {
      if (take(std::string_view(&plain, 1))) return static_cast<char32_t>(plain);
    }
    throw expected("one of the escapes \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\^");
  }

  // Line breaks may stand in literals and classes as they are, as in llama.cpp. `place` is where
  // the literal begins.
  Expression parse_literal(std::string_view place) {
    std::string text;
    while (!take("\"")) {
      if (rest_.empty()) throw error_at(place, "the literal has no quotation mark (\") at its end");
      text += utf8::encode(parse_character());
    }
    return builder_.literal(text);
  }

  Expression parse_class(std::string_view begin) {
    const bool is_negated = take("^");
    Ranges ranges;
    while (!take("]")) {
      if (rest_.empty()) throw error_at(begin, "the class has no \"]\" at its end");
      const std::string_view place = rest_;
      const char32_t first = parse_character();
      char32_t last = first;
      if (rest_.starts_with('-') && !rest_.starts_with("-]")) {
        rest_.remove_prefix(1);
        last = parse_character();
      }
      if (last < first) throw error_at(place, "the range ends before it begins");
      ranges.push_back({first, last});
    }
    return builder_.characters(is_negated ? complement(std::move(ranges)) : ranges);
  }

  std::uint32_t parse_number() {
    const std::string_view place = rest_;
    std::uint32_t value = 0;
    bool has_digits = false;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      value = value * 10 + static_cast<std::uint32_t>(rest_[0] - '0');
      if (value > gbnf_rounds_max) {
        throw error_at(place, fmt::format("the number is greater than {}", gbnf_rounds_max));
      }
      rest_.remove_prefix(1);
      has_digits = true;
    }
    if (!has_digits) throw expected("a number");
    return value;
  }

  std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_rounds() {
    constexpr std::uint32_t unlimited = GrammarBuilder::unlimited;
    if (take("*")) return std::pair{0U, unlimited};
    if (take("+")) return std::pair{1U, unlimited};
    if (take("?")) return std::pair{0U, 1U};
    const std::string_view place = rest_;
    if (!take("{")) return std::nullopt;
    skip_space(false);
    const std::uint32_t min = parse_number();
    std::uint32_t max = min;
    skip_space(false);
    if (take(",")) {
      skip_space(false);
      max = rest_.starts_with('}') ? unlimited : parse_number();
      skip_space(false);
    }
    if (!take("}")) throw expected("\"}\"");
    if (max < min) throw error_at(place, "the most rounds are fewer than the least");
    return std::pair{min, max};
  }

  std::string_view text_, rest_;
  GrammarBuilder builder_;
  std::map<std::string, RuleUse> rules_;
};

}  // namespace

Grammar compile_gbnf(std::string_view text, CompileBudget& budget) {
  if (text.size() > gbnf_bytes_max) {
    throw GrammarError(
        fmt::format("the grammar has {} bytes, the most is {}", text.size(), gbnf_bytes_max));
  }
  budget.spend(text.size());
  return GbnfParser(text, budget).parse();
}

Grammar compile_gbnf(std::string_view text) {
  CompileBudget budget;
  return compile_gbnf(text, budget);
}

}  // namespace sluice::constrain
