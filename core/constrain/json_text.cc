#include "core/constrain/json_text.h"

#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text/quoted.h"
#include "core/text/utf8.h"

namespace sluice::constrain {

namespace {

struct ShortEscape {
  char32_t character;
  std::string_view text;
};
constexpr std::array<ShortEscape, 7> short_escapes = {{{'"', "\\\""},
                                                       {'\\', "\\\\"},
                                                       {'\b', "\\b"},
                                                       {'\f', "\\f"},
                                                       {'\n', "\\n"},
                                                       {'\r', "\\r"},
                                                       {'\t', "\\t"}}};

const Ranges all_characters = {{0, last_character}};
const Ranges escaped_characters = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
const Ranges plain_characters = complement(escaped_characters);

std::string name_of(const Ranges& ranges) {
  std::string name;
  for (const CharacterRange& range : ranges) {
    name += fmt::format("{}-{} ", static_cast<std::uint32_t>(range.first),
                        static_cast<std::uint32_t>(range.last));
  }
  return name;
}

std::string escape_of(char32_t character) {
  for (const ShortEscape& escape : short_escapes) {
    if (escape.character == character) return std::string(escape.text);
  }
  return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character));
}

ByteSet set_of(std::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.set(static_cast<unsigned char>(byte));
  return set;
}

constexpr std::string_view digit_bytes = "0123456789";
constexpr std::string_view hexadecimal_bytes = "0123456789abcdefABCDEF";

}  // namespace

Expression JsonText::rule(std::string name, Expression body) {
  const Rule rule = builder_->add_rule(std::move(name));
  builder_->define(rule, body);
  return builder_->call(rule);
}

Expression JsonText::comma() {
  if (!comma_) {
    comma_ =
        builder_->sequence({builder_->literal(","), builder_->optional(builder_->literal(" "))});
  }
  return *comma_;
}

Expression JsonText::colon() {
  if (!colon_) {
    colon_ =
        builder_->sequence({builder_->literal(":"), builder_->optional(builder_->literal(" "))});
  }
  return *colon_;
}

Expression JsonText::any_character() {
  if (any_character_) return *any_character_;
  GrammarBuilder& b = *builder_;
  const auto hex = [&](std::uint32_t count) {
    return b.repeat(b.bytes(set_of(hexadecimal_bytes)), count, count);
  };
  const Expression d = b.bytes(set_of("dD"));
  const Expression outside_surrogates =
      b.choice({b.sequence({b.bytes(set_of("0123456789abcefABCEF")), hex(3)}),
                b.sequence({d, b.bytes(set_of("01234567")), hex(2)})});
  const Expression pair = b.sequence({d, b.bytes(set_of("89abAB")), hex(2), b.literal("\\u"), d,
                                      b.bytes(set_of("cdefCDEF")), hex(2)});
  const Expression escaped =
      b.choice({b.bytes(set_of("\"\\/bfnrt")),
                b.sequence({b.literal("u"), b.choice({outside_surrogates, pair})})});
  any_character_ =
      b.choice({b.characters(plain_characters), b.sequence({b.literal("\\"), escaped})});
  return *any_character_;
}

Expression JsonText::string(std::uint32_t min, std::uint32_t max) {
  const auto known = strings_.find({min, max});
  if (known != strings_.end()) return known->second;
  GrammarBuilder& b = *builder_;
  const Expression made =
      rule("string",
           b.sequence({b.literal("\""), b.repeat(any_character(), min, max), b.literal("\"")}));
  strings_.emplace(std::pair{min, max}, made);
  return made;
}

Expression JsonText::character(const Ranges& ranges) {
  std::string name = name_of(ranges);
  builder_->budget().spend(16 * (1 + ranges.size()));
  const auto known = characters_.find(name);
  if (known != characters_.end()) return known->second;
  std::vector<Expression> ways = {builder_->characters(intersection(ranges, plain_characters))};
  for (const CharacterRange& range : intersection(ranges, escaped_characters)) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      ways.push_back(builder_->literal(escape_of(c)));
    }
  }
  const Expression made = builder_->choice(std::move(ways));
  builder_->budget().hold(100 + name.size());
  characters_.emplace(std::move(name), made);
  return made;
}

std::string JsonText::plain_text(std::string_view text) const {
  std::string written;
  while (const std::optional<char32_t> c = take_character(text)) {
    written += contains(plain_characters, *c) ? utf8::encode(*c) : escape_of(*c);
  }
  return written;
}

namespace {

// Names as a tree of characters: each node stands behind the one that it follows.
struct KeyNode {
  bool is_name = false;
  std::map<char32_t, std::size_t> children;  // places of nodes
};

std::vector<KeyNode> tree_of(std::span<const std::string> names, CompileBudget& budget) {
  constexpr std::size_t bytes = CompileBudget::growth * sizeof(KeyNode) + 64;
  std::vector<KeyNode> nodes(1);
  for (std::string_view name : names) {
    std::size_t at = 0;
    while (const std::optional<char32_t> c = take_character(name)) {
      budget.hold(bytes);
      budget.spend(16);
      const auto [child, is_new] = nodes[at].children.try_emplace(*c, nodes.size());
      at = child->second;
      if (is_new) nodes.emplace_back();
    }
    nodes[at].is_name = true;
  }
  return nodes;
}

}  // namespace

// One character of the ranges and whatever follows it, up to the quotation mark. A rule, as it
// occurs at many places of one tree.
Expression JsonText::character_and_rest(Ranges ranges) {
  std::string name = name_of(ranges);
  const auto known = rests_.find(name);
  if (known != rests_.end()) return known->second;
  GrammarBuilder& b = *builder_;
  if (!rest_) {
    rest_ = rule("the rest of a key",
                 b.sequence({b.repeat(character(all_characters), 0, unlimited), b.literal("\"")}));
    escaped_ = rule("an escaped character", character(escaped_characters));
  }
  const bool has_all_escaped =
      name_of(intersection(ranges, escaped_characters)) == name_of(escaped_characters);
  const Expression first =
      has_all_escaped ? b.choice({character(intersection(ranges, plain_characters)), *escaped_})
                      : character(ranges);
  const Expression made = rule("another key", b.sequence({first, *rest_}));
  b.budget().hold(100 + name.size());
  rests_.emplace(std::move(name), made);
  return made;
}

// Built from the leaves to the root, without recursion: a name may be as long as a schema.
Expression JsonText::other_key(std::span<const std::string> names) {
  GrammarBuilder& b = *builder_;
  const std::vector<KeyNode> nodes = tree_of(names, b.budget());
  std::vector<Expression> made(nodes.size());
  for (std::size_t i = nodes.size(); i-- > 0;) {
    Ranges followed;
    std::vector<Expression> ways;
    if (!nodes[i].is_name) ways.push_back(b.literal("\""));
    for (const auto& [c, child] : nodes[i].children) {
      followed.push_back({c, c});
      ways.push_back(b.sequence({character({{c, c}}), made[child]}));
    }
    ways.push_back(character_and_rest(complement(std::move(followed))));
    made[i] = b.choice(std::move(ways));
  }
  return made[0];
}

Expression JsonText::number() {
  if (number_) return *number_;
  GrammarBuilder& b = *builder_;
  const Expression digit = b.bytes(set_of(digit_bytes));
  const Expression whole = b.choice(
      {b.literal("0"), b.sequence({b.bytes(set_of("123456789")), b.repeat(digit, 0, 14)})});
  const Expression fraction = b.sequence({b.literal("."), b.repeat(digit, 1, 15)});
  const Expression exponent =
      b.sequence({b.bytes(set_of("eE")), b.optional(b.bytes(set_of("+-"))), b.repeat(digit, 1, 2)});
  number_ = rule("number", b.sequence({b.optional(b.literal("-")), whole, b.optional(fraction),
                                       b.optional(exponent)}));
  return *number_;
}

Expression JsonText::integer() {
  if (integer_) return *integer_;
  GrammarBuilder& b = *builder_;
  const Expression digit = b.bytes(set_of(digit_bytes));
  const Expression other = b.sequence(
      {b.optional(b.literal("-")), b.bytes(set_of("123456789")), b.repeat(digit, 0, 17)});
  integer_ = rule("integer", b.choice({b.literal("0"), other}));
  return *integer_;
}

Expression JsonText::boolean() {
  if (!boolean_) {
    boolean_ =
        rule("boolean", builder_->choice({builder_->literal("true"), builder_->literal("false")}));
  }
  return *boolean_;
}

Expression JsonText::object() {
  if (object_) return *object_;
  GrammarBuilder& b = *builder_;
  const Expression member = b.sequence({string(0, unlimited), colon(), value()});
  object_ = rule("object", b.sequence({b.literal("{"),
                                       b.members({{member, GrammarBuilder::Times::any}}, comma()),
                                       b.literal("}")}));
  return *object_;
}

Expression JsonText::array() {
  if (array_) return *array_;
  GrammarBuilder& b = *builder_;
  array_ = rule("array", b.sequence({b.literal("["),
                                     b.members({{value(), GrammarBuilder::Times::any}}, comma()),
                                     b.literal("]")}));
  return *array_;
}

Expression JsonText::value() {
  if (value_) return builder_->call(*value_);
  GrammarBuilder& b = *builder_;
  value_ = b.add_rule("value");
  b.define(*value_, b.choice({string(0, unlimited), number(), boolean(), b.literal("null"),
                              object(), array()}));
  return b.call(*value_);
}

void JsonText::leave_aside(std::string_view format) {
  constexpr std::size_t names_max = 8;
  if (left_aside_.size() < names_max) left_aside_.insert(text::escaped(format, 40));
}

std::string JsonText::warning() const {
  if (left_aside_.empty()) return {};
  const auto ascii = [](const nlohmann::json& text) {
    return text.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  std::string names;
  for (const std::string& name : left_aside_) names += (names.empty() ? "" : ", ") + ascii(name);
  return "the schema has formats that are not known, or not with these lengths, so no text has to "
         "have them: " +
         names;
}

}  // namespace sluice::constrain
