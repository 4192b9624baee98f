#include "core/constrain/pattern.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/constrain/characters.h"
#include "core/text/utf8.h"

namespace sluice::constrain {
namespace {

constexpr std::uint32_t endless_rounds = GrammarBuilder::unlimited;
constexpr std::uint32_t pattern_rounds_max = 1U << 16;

struct Pattern {
  enum class Kind : std::uint8_t { characters, sequence, choice, repeat, begin, end };
  Kind kind;
  Ranges ranges = {};
  std::vector<Pattern> parts = {};
  std::uint32_t min = 0, max = 0;
};

const Ranges digit_characters = {{'0', '9'}};
const Ranges word_characters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges space_characters = {{'\t', '\r'}, {' ', ' '}};
const Ranges beyond_ascii = {{0x80, last_character}};
// All characters that any of the common engines takes for white space.
const Ranges any_space = {{'\t', '\r'},     {0x1C, 0x1F},     {' ', ' '},       {0x85, 0x85},
                          {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                          {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges line_ends = {{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}};

Ranges joined(Ranges a, const Ranges& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text), rest_(text) {}

  Pattern parse() {
    Pattern pattern = parse_choice(0);
    if (!rest_.empty()) throw error("a \")\" too many");
    return pattern;
  }

 private:
  GrammarError error(std::string_view what) const {
    const std::string_view before = text_.substr(0, text_.size() - rest_.size());
    const auto characters = std::ranges::count(before, false, utf8::is_continuation);
    return GrammarError(fmt::format("pattern, character {}: {}", characters + 1, what));
  }

  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  char32_t character() {
    const std::optional<char32_t> c = take_character(rest_);
    if (!c) throw error(rest_.empty() ? "the pattern ends too early" : "this is not UTF-8");
    return *c;
  }

  Pattern parse_choice(unsigned depth) {
    if (depth > pattern_depth_max) {
      throw error(fmt::format("groups are nested deeper than {} levels", pattern_depth_max));
    }
    Pattern choice{Pattern::Kind::choice};
    do {
      choice.parts.push_back(parse_sequence(depth));
    } while (take("|"));
    return choice.parts.size() == 1 ? std::move(choice.parts[0]) : choice;
  }

  Pattern parse_sequence(unsigned depth) {
    Pattern sequence{Pattern::Kind::sequence};
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      sequence.parts.push_back(parse_item(depth));
      parse_quantifiers(sequence.parts.back());
    }
    return sequence;
  }

  void parse_quantifiers(Pattern& item) {
    std::uint32_t min = 0, max = endless_rounds;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take_counts(min, max)) {
      return;
    }
    if (item.kind == Pattern::Kind::begin || item.kind == Pattern::Kind::end) {
      throw error("a repeated anchor is not supported");
    }
    take("?");  // lazy: matches the same texts
    Pattern repeat{Pattern::Kind::repeat, {}, {}, min, max};
    repeat.parts.push_back(std::move(item));
    item = std::move(repeat);
    if (at_quantifier()) throw error("a quantifier behind a quantifier");
  }

  bool at_quantifier() {
    const std::string_view before = rest_;
    std::uint32_t min = 0, max = 0;
    const bool found = take("*") || take("+") || take("?") || take_counts(min, max);
    rest_ = before;
    return found;
  }

  // {m}, {m,} or {m,n}; anything else in braces stands for itself.
  bool take_counts(std::uint32_t& min, std::uint32_t& max) {
    const std::string_view before = rest_;
    if (!take("{")) return false;
    const std::optional<std::uint32_t> first = number();
    if (!first && take(",") && number() && take("}")) {
      throw error("engines differ in what \"{,n}\" means; write \"{0,n}\", or \"\\{,n}\"");
    }
    std::optional<std::uint32_t> second = first;
    if (first && take(",")) second = rest_.starts_with('}') ? endless_rounds : number();
    if (!first || !second || !take("}")) {
      rest_ = before;
      return false;
    }
    if (*second < *first) throw error("the most rounds are fewer than the least");
    min = *first;
    max = *second;
    return true;
  }

  std::optional<std::uint32_t> number() {
    std::uint32_t value = 0;
    const std::string_view before = rest_;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      value = value * 10 + static_cast<std::uint32_t>(rest_[0] - '0');
      if (value > pattern_rounds_max)
        throw error(fmt::format("a number greater than {}", pattern_rounds_max));
      rest_.remove_prefix(1);
    }
    if (rest_.size() == before.size()) return std::nullopt;
    return value;
  }

  Pattern parse_item(unsigned depth) {
    if (take("^")) return {Pattern::Kind::begin};
    if (take("$")) return {Pattern::Kind::end};
    if (take("(")) return parse_group(depth);
    if (take("[")) return {Pattern::Kind::characters, parse_class()};
    if (take(".")) return {Pattern::Kind::characters, complement(line_ends)};
    if (take("\\")) return {Pattern::Kind::characters, parse_escape(false)};
    if (at_quantifier()) throw error("nothing stands in front of the quantifier");
    const char32_t c = character();
    return {Pattern::Kind::characters, {{c, c}}};
  }

  Pattern parse_group(unsigned depth) {
    if (take("?")) {
      const bool is_name =
          rest_.starts_with("<") && !rest_.starts_with("<=") && !rest_.starts_with("<!");
      if (is_name) {
        rest_.remove_prefix(std::min(rest_.find('>'), rest_.size()));
        if (!take(">")) throw error("the name of a group has no \">\"");
      } else if (!take(":")) {
        throw error("look-around and flags (\"(?\") are not supported");
      }
    }
    Pattern group = parse_choice(depth + 1);
    if (!take(")")) throw error("a group has no \")\"");
    return group;
  }

  Ranges parse_class() {
    const bool is_negated = take("^");
    if (rest_.starts_with("]")) {
      throw error("engines differ in what \"]\" means at the front of a class; write \"\\]\"");
    }
    Ranges ranges;
    while (!take("]")) {
      if (rest_.empty()) throw error("a class has no \"]\"");
      Ranges first = class_item(is_negated);
      const bool is_one = first.size() == 1 && first[0].first == first[0].last;
      if (is_one && rest_.starts_with("-") && !rest_.starts_with("-]")) {
        rest_.remove_prefix(1);
        const Ranges last = class_item(is_negated);
        if (last.size() != 1 || last[0].first != last[0].last || last[0].last < first[0].first) {
          throw error("a range of a class that ends before it begins");
        }
        first[0].last = last[0].last;
      }
      ranges = joined(std::move(ranges), first);
    }
    return is_negated ? complement(std::move(ranges)) : ranges;
  }

  Ranges class_item(bool is_negated) {
    if (!take("\\")) {
      const char32_t c = character();
      return {{c, c}};
    }
    if (is_negated) {
      if (std::optional<Ranges> ranges = widest_shorthand()) return *std::move(ranges);
    }
    return parse_escape(true);
  }

  // Where the complement is taken: all characters for which \w and its like stand in any engine.
  std::optional<Ranges> widest_shorthand() {
    if (take("d")) return joined(digit_characters, beyond_ascii);
    if (take("w")) return joined(word_characters, beyond_ascii);
    if (take("s")) return any_space;
    if (take("D")) return complement(digit_characters);
    if (take("W")) return complement(word_characters);
    if (take("S")) return complement(space_characters);
    return std::nullopt;
  }

  // Behind a backslash.
  Ranges parse_escape(bool in_class) {
    if (take("d")) return digit_characters;
    if (take("w")) return word_characters;
    if (take("s")) return space_characters;
    if (take("D")) return complement(joined(digit_characters, beyond_ascii));
    if (take("W")) return complement(joined(word_characters, beyond_ascii));
    if (take("S")) return complement(any_space);
    const char32_t c = escaped_character(in_class);
    return {{c, c}};
  }

  char32_t escaped_character(bool in_class) {
    if (take("n")) return '\n';
    if (take("t")) return '\t';
    if (take("r")) return '\r';
    if (take("f")) return '\f';
    if (take("v")) return '\v';
    if (in_class && take("b")) return '\b';
    if (take("x")) return hexadecimal(2);
    if (take("u")) return hexadecimal(4);
    const char32_t c = character();
    if (c == '0' && (rest_.empty() || rest_[0] < '0' || rest_[0] > '9')) return 0;
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter) throw error(fmt::format("\"\\{}\" is not supported", static_cast<char>(c)));
    return c;
  }

  char32_t hexadecimal(unsigned digits) {
    const std::optional<char32_t> value = take_hexadecimal(rest_, digits);
    if (!value || is_surrogate(*value)) {
      throw error(fmt::format("expected {} hexadecimal digits of a character", digits));
    }
    return *value;
  }

  std::string_view text_, rest_;
};

const Pattern& anything() {
  static const Pattern all = [] {
    Pattern repeat{Pattern::Kind::repeat, {}, {}, 0, endless_rounds};
    repeat.parts.push_back({Pattern::Kind::characters, {{0, last_character}}});
    return repeat;
  }();
  return all;
}

bool has_anchor(const Pattern& pattern) {
  return pattern.kind == Pattern::Kind::begin || pattern.kind == Pattern::Kind::end ||
         std::ranges::any_of(pattern.parts, has_anchor);
}

// Takes away the rounds of a repetition that anything may stand in place of, as anything stands in
// front of the pattern, or behind it. Else each of the rounds would be counted from every place.
void shorten(Pattern& pattern, bool at_front) {
  if (pattern.kind == Pattern::Kind::repeat) {
    pattern.max = pattern.min;
  } else if (pattern.kind == Pattern::Kind::choice) {
    for (Pattern& part : pattern.parts) shorten(part, at_front);
  } else if (pattern.kind == Pattern::Kind::sequence && !pattern.parts.empty()) {
    shorten(at_front ? pattern.parts.front() : pattern.parts.back(), at_front);
  }
}

// The pattern of whole texts: without anchors, and with anything in front and behind where it has
// none.
Pattern whole_texts(Pattern pattern) {
  if (pattern.kind == Pattern::Kind::choice) {
    for (Pattern& part : pattern.parts) part = whole_texts(std::move(part));
    return pattern;
  }
  Pattern whole{Pattern::Kind::sequence};
  if (pattern.kind == Pattern::Kind::sequence) {
    whole.parts = std::move(pattern.parts);
  } else {
    whole.parts.push_back(std::move(pattern));
  }
  if (whole.parts.size() == 1 && whole.parts[0].kind != Pattern::Kind::repeat &&
      !whole.parts[0].parts.empty() && has_anchor(whole.parts[0])) {
    return whole_texts(std::move(whole.parts[0]));  // a group around everything
  }
  const auto begins = [&] {
    return !whole.parts.empty() && whole.parts.front().kind == Pattern::Kind::begin;
  };
  const auto ends = [&] {
    return !whole.parts.empty() && whole.parts.back().kind == Pattern::Kind::end;
  };
  const bool has_begin = begins(), has_end = ends();
  const auto first = std::ranges::find_if(
      whole.parts, [](const Pattern& part) { return part.kind != Pattern::Kind::begin; });
  whole.parts.erase(whole.parts.begin(), first);
  while (ends()) whole.parts.pop_back();
  if (has_anchor(whole)) {
    throw GrammarError(
        "pattern: an anchor (^ or $) elsewhere than at the end of an alternative is "
        "not supported");
  }
  if (!has_begin) shorten(whole, true);
  if (!has_end) shorten(whole, false);
  if (!has_begin) whole.parts.insert(whole.parts.begin(), anything());
  if (!has_end) whole.parts.push_back(anything());
  return whole;
}

struct Length {
  std::uint64_t min = 0, max = 0;
};

constexpr std::uint64_t endless = std::numeric_limits<std::uint32_t>::max();

Length length_of(const Pattern& pattern) {
  Length length;
  switch (pattern.kind) {
    case Pattern::Kind::characters:
      return {1, 1};
    case Pattern::Kind::sequence:
      for (const Pattern& part : pattern.parts) {
        const Length more = length_of(part);
        length.min = std::min(endless, length.min + more.min);
        length.max = std::min(endless, length.max + more.max);
      }
      return length;
    case Pattern::Kind::choice:
      length.min = endless;
      for (const Pattern& part : pattern.parts) {
        const Length other = length_of(part);
        length.min = std::min(length.min, other.min);
        length.max = std::max(length.max, other.max);
      }
      return length;
    case Pattern::Kind::repeat: {
      const Length part = length_of(pattern.parts[0]);
      return {std::min(endless, part.min * pattern.min),
              part.max == 0 ? 0 : std::min(endless, part.max * pattern.max)};
    }
    case Pattern::Kind::begin:
    case Pattern::Kind::end:
      break;
  }
  return length;
}

// Narrows the pattern to texts of min to max characters. Possible where at most one part of a
// sequence varies in length, and that is a repeated class. Returns false where it is not.
bool narrow(Pattern& pattern, std::uint64_t min, std::uint64_t max) {
  const Length length = length_of(pattern);
  if (length.min >= min && length.max <= max) return true;
  if (pattern.kind == Pattern::Kind::choice) {
    return std::ranges::all_of(pattern.parts,
                               [&](Pattern& part) { return narrow(part, min, max); });
  }
  if (pattern.kind == Pattern::Kind::repeat && pattern.parts[0].kind == Pattern::Kind::characters) {
    pattern.min = static_cast<std::uint32_t>(std::max<std::uint64_t>(pattern.min, min));
    pattern.max = static_cast<std::uint32_t>(std::min<std::uint64_t>(pattern.max, max));
    return true;
  }
  if (length.min > max || length.max < min) {  // no text at all
    pattern = {Pattern::Kind::choice};
    return true;
  }
  if (pattern.kind != Pattern::Kind::sequence) return false;
  Pattern* varying = nullptr;
  std::uint64_t fixed = 0;
  for (Pattern& part : pattern.parts) {
    const Length one = length_of(part);
    if (one.min == one.max) {
      fixed += one.min;
    } else if (varying != nullptr) {
      return false;
    } else {
      varying = &part;
    }
  }
  return varying != nullptr &&
         narrow(*varying, min > fixed ? min - fixed : 0, max == endless ? endless : max - fixed);
}

// What a pattern matches, and of that what is not empty.
struct Built {
  Expression all, some;
};

// A counted repetition cannot have empty rounds, so a part that may be empty has rounds that are
// not, down to none of them.
Built build_repeat(GrammarBuilder& b, const Pattern& pattern, const Built& part) {
  const bool may_be_empty = length_of(pattern.parts[0]).min == 0;
  const std::uint32_t min = may_be_empty ? 0 : pattern.min;
  const Expression all = b.repeat(part.some, min, pattern.max);
  return {all, min != 0 ? all : b.repeat(part.some, 1, pattern.max)};
}

// The first part that is not empty may be any of them, if all may be empty.
Built build_sequence(GrammarBuilder& b, const Pattern& pattern, const std::vector<Built>& parts) {
  std::vector<Expression> all;
  all.reserve(parts.size());
  for (const Built& part : parts) all.push_back(part.all);
  const Expression whole = b.sequence(all);
  if (length_of(pattern).min != 0) return {whole, whole};
  Expression some = b.nothing(), rest = b.empty();
  for (std::size_t i = parts.size(); i-- > 0;) {
    some = b.choice({b.sequence({parts[i].some, rest}), some});
    rest = b.sequence({parts[i].all, rest});
  }
  return {whole, some};
}

Built build(JsonText& json, const Pattern& pattern) {
  GrammarBuilder& b = json.builder();
  if (pattern.kind == Pattern::Kind::characters) {
    const Expression one = json.character(pattern.ranges);
    return {one, one};
  }
  std::vector<Built> parts;
  for (const Pattern& part : pattern.parts) parts.push_back(build(json, part));
  if (pattern.kind == Pattern::Kind::repeat) return build_repeat(b, pattern, parts[0]);
  if (pattern.kind != Pattern::Kind::choice) return build_sequence(b, pattern, parts);
  std::vector<Expression> all, some;
  for (const Built& part : parts) {
    all.push_back(part.all);
    some.push_back(part.some);
  }
  return {b.choice(std::move(all)), b.choice(std::move(some))};
}

}  // namespace

std::optional<Expression> pattern_string(JsonText& json, std::string_view pattern,
                                         std::uint32_t min, std::uint32_t max) {
  if (pattern.size() > pattern_bytes_max) {
    throw GrammarError(
        fmt::format("pattern: it has {} bytes, the most is {}", pattern.size(), pattern_bytes_max));
  }
  constexpr std::size_t steps_a_byte = 64;
  constexpr std::size_t bytes_a_byte = 4 * sizeof(Pattern);
  json.builder().budget().spend(steps_a_byte * pattern.size());
  const HeldBytes held(json.builder().budget(), bytes_a_byte * pattern.size());
  Pattern whole = whole_texts(PatternParser(pattern).parse());
  if (!narrow(whole, min, max)) return std::nullopt;
  GrammarBuilder& b = json.builder();
  return b.sequence({b.literal("\""), build(json, whole).all, b.literal("\"")});
}

std::uint32_t longest_text(std::string_view pattern) {
  return static_cast<std::uint32_t>(length_of(whole_texts(PatternParser(pattern).parse())).max);
}

}  // namespace sluice::constrain
