#include "core/constrain/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <deque>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/constrain/formats.h"
#include "core/constrain/json_text.h"
#include "core/constrain/number_range.h"
#include "core/constrain/pattern.h"
#include "core/constrain/schema_merge.h"
#include "core/text/keyed_hash.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::constrain {
namespace {

using Times = GrammarBuilder::Times;

constexpr std::uint32_t no_limit = GrammarBuilder::unlimited;

class SchemaCompiler {
 public:
  // Both must outlive the compiler.
  SchemaCompiler(const Schema& root, JsonText& json)
      : budget_(json.builder().budget()),
        merger_(root, budget_),
        builder_(json.builder()),
        json_(json) {}

  Expression compile(const Schema& part) {
    const Expression values = value_of(part, "");
    while (!open_.empty()) {
      const Part next = std::move(open_.front());
      open_.pop_front();
      builder_.define(next.rule, body_of(next.schema, next.pointer));
    }
    return values;
  }

 private:
  // A schema whose rule is still to be defined.
  struct Part {
    GrammarBuilder::Rule rule;
    Schema schema;
    std::string pointer;
    HeldBytes held;
  };

  static constexpr std::array<const char*, 4> combiners = {"$ref", "allOf", "anyOf", "oneOf"};

  // The values of a schema: a call of its rule. Equal schemas share one, which also ends recursion.
  Expression value_of(const Schema& schema, const std::string& pointer) {
    if (schema == true) return json_.value();
    if (forbids_all(schema)) return builder_.nothing();
    if (!schema.is_object()) throw schema_error(pointer, "expected an object, true or false");
    if (rules_.size() >= schema_parts_max) {
      throw schema_error(
          pointer, fmt::format("the schema has more than {} schemas within it", schema_parts_max));
    }
    budget_.spend(64 + reading_steps(schema));
    std::string text = schema.dump(-1, ' ', false, Schema::error_handler_t::replace);
    const auto [at, is_new] = rules_.try_emplace(std::move(text), 0);
    if (is_new) {
      constexpr std::size_t place = 128;  // in the map
      budget_.hold(place + at->first.size());
      at->second = builder_.add_rule(pointer.empty() ? "the schema" : pointer);
      HeldBytes held(budget_, sizeof(Part) + json_bytes(schema) + pointer.size());
      budget_.spend(copying_steps(schema));
      open_.push_back({at->second, schema, pointer, std::move(held)});
    }
    return builder_.call(at->second);
  }

  // A schema that consists of alternatives alone becomes a choice of their rules. They are not
  // multiplied out, so they may refer to each other.
  Expression body_of(const Schema& schema, const std::string& pointer) {
    const std::string_view combiner = only_combiner(schema);
    if (combiner == "$ref") {
      const Schema& target = merger_.target(schema["$ref"], pointer);
      const std::string_view name = schema["$ref"].get_ref<const std::string&>();
      return value_of(target, text::escaped(name.substr(1), pointer_bytes_max));
    }
    const std::string place = pointer_to(pointer, combiner);
    if (combiner == "allOf" && schema["allOf"].size() == 1) {
      return value_of(schema["allOf"][0], pointer_to(place, "0"));
    }
    if (combiner == "anyOf" || combiner == "oneOf") {
      const Schema& list = schema[std::string(combiner)];
      if (combiner == "oneOf") check_one_of(list, place);
      std::vector<Expression> branches;
      for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string at = pointer_to(place, std::to_string(i));
        const bool is_inline = list.size() > few_branches && lists_values(list[i]);
        branches.push_back(is_inline ? body_of(list[i], at) : value_of(list[i], at));
      }
      return builder_.choice(std::move(branches));
    }
    std::vector<Expression> ways;
    const Ways plain_ways = merger_.ways(schema, pointer);
    for (const Schema& plain : plain_ways.list) {
      ways.push_back(plain_value(plain, pointer));
    }
    return builder_.choice(std::move(ways));
  }

  // Whether a schema is a list of values, such as a constant with a title. A branch with a rule of
  // its own is one way to read a text; where there are hundreds, these do without one.
  static constexpr std::size_t few_branches = 16;
  static bool lists_values(const Schema& schema) {
    return schema.is_object() && (schema.contains("const") || schema.contains("enum")) &&
           std::ranges::none_of(combiners, [&](const char* name) { return schema.contains(name); });
  }

  // "anyOf" and the like when the schema has it, and besides nothing that limits values.
  static std::string_view only_combiner(const Schema& schema) {
    std::string_view found;
    for (const auto& item : schema.items()) {
      const std::string& name = item.key();
      for (const std::string_view combiner : combiners) {
        if (name != combiner) continue;
        if (!found.empty()) return "none";
        if (combiner != "$ref" && (!item.value().is_array() || item.value().empty())) return "none";
        found = combiner;
      }
      if (name != found && says_what_is_valid(name)) return "none";
    }
    return found.empty() ? "none" : found;
  }

  void check_one_of(const Schema& list, const std::string& place) {
    std::vector<Ways> branches;
    for (std::size_t i = 0; i < list.size(); ++i) {
      branches.push_back(merger_.ways(list[i], pointer_to(place, std::to_string(i))));
    }
    merger_.check_disjoint(branches, place);
  }

  Expression plain_value(const Schema& plain, const std::string& pointer) {
    if (plain.contains("enum")) return listed_value(plain, pointer);
    const Types types = types_of(plain, pointer);
    std::vector<Expression> ways;
    if ((types & type_null) != 0) ways.push_back(builder_.literal("null"));
    if ((types & type_boolean) != 0) ways.push_back(json_.boolean());
    if ((types & type_object) != 0) ways.push_back(object(plain, pointer));
    if ((types & type_array) != 0) ways.push_back(array(plain, pointer));
    if ((types & type_string) != 0) ways.push_back(string(plain, pointer));
    if ((types & type_fraction) != 0) {
      ways.push_back(number(plain, pointer));
    } else if ((types & type_integer) != 0) {
      ways.push_back(integer(plain, pointer));
    }
    return builder_.choice(std::move(ways));
  }

  Expression listed_value(const Schema& plain, const std::string& pointer) {
    std::vector<Expression> ways;
    for (const Schema& value : plain["enum"]) {
      budget_.spend(64 + reading_steps(value));
      if (!is_plainly_valid(value, plain)) continue;
      check_beside_enum(value, plain, pointer);
      ways.push_back(
          builder_.literal(value.dump(-1, ' ', false, Schema::error_handler_t::replace)));
    }
    return builder_.choice(std::move(ways));
  }

  static void check_beside_enum(const Schema& value, const Schema& plain,
                                const std::string& pointer) {
    const Types type = type_of_value(value);
    const auto refuse = [&](std::initializer_list<const char*> names) {
      for (const char* name : names) {
        if (plain.contains(name)) {
          throw schema_error(pointer_to(pointer, name), "not supported beside enum and const");
        }
      }
    };
    if (type == type_string) refuse({"pattern"});
    if ((type & type_number) != 0) refuse({"multipleOf"});
    if (type == type_object) {
      refuse({"properties", "required", "additionalProperties", "minProperties", "maxProperties"});
    }
    if (type == type_array) {
      refuse({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"});
    }
  }

  static const Schema& any_value() {
    static const Schema any = true;
    return any;
  }

  // A member of a schema; an empty one of its kind when it is not there.
  static const Schema& part_of(const Schema& plain, const char* name, Schema::value_t kind) {
    static const Schema array = Schema::array(), object = Schema::object();
    const auto found = plain.find(name);
    if (found != plain.end()) return *found;
    return kind == Schema::value_t::array ? array : object;
  }

  // A count such as minLength.
  static std::uint32_t count(const Schema& plain, const char* name, std::uint32_t absent,
                             const std::string& pointer) {
    const auto found = plain.find(name);
    if (found == plain.end()) return absent;
    const bool is_count = found->is_number() && found->get<double>() >= 0 &&
                          found->get<double>() == std::floor(found->get<double>());
    if (!is_count) throw schema_error(pointer_to(pointer, name), "expected a number of 0 or more");
    // A number beyond the length of any text is clamped: as a maximum it limits nothing, as a
    // minimum it allows no text.
    return static_cast<std::uint32_t>(std::min(found->get<double>(), double{no_limit - 1}));
  }

  std::optional<Expression> matching_string(const std::string& pattern, std::uint32_t min,
                                            std::uint32_t max, const std::string& place) {
    try {
      return pattern_string(json_, pattern, min, max);
    } catch (const GrammarError& error) {
      throw schema_error(place, error.what());
    }
  }

  // A text of the format with these lengths. Nothing where there is none: a format forbids nothing
  // that is not known, or whose pattern cannot be combined with the lengths; a warning names it.
  std::optional<Expression> formatted_string(const Schema& format, std::uint32_t min,
                                             std::uint32_t max, const std::string& pointer) {
    if (!format.is_string()) return std::nullopt;
    const std::string& name = format.get_ref<const std::string&>();
    const std::optional<std::string> pattern = pattern_of_format(name, max);
    std::optional<Expression> text;
    if (pattern) text = matching_string(*pattern, min, max, pointer_to(pointer, "format"));
    if (!text && !is_hint(name)) json_.leave_aside(name);
    return text;
  }

  Expression string(const Schema& plain, const std::string& pointer) {
    const std::uint32_t min = count(plain, "minLength", 0, pointer);
    const std::uint32_t max = count(plain, "maxLength", no_limit, pointer);
    // Beside a pattern, which says more, a format is the remark that the specification makes of it.
    if (const auto pattern = plain.find("pattern"); pattern != plain.end()) {
      const std::string place = pointer_to(pointer, "pattern");
      if (!pattern->is_string()) throw schema_error(place, "expected a string");
      if (const auto text = matching_string(*pattern, min, max, place)) return *text;
      throw schema_error(place,
                         "this one together with minLength or maxLength is not supported: write "
                         "the lengths into the pattern");
    }
    const auto format = plain.find("format");
    std::optional<Expression> text;
    if (format != plain.end()) text = formatted_string(*format, min, max, pointer);
    for (const Schema& other : part_of(plain, other_formats, Schema::value_t::array)) {
      formatted_string(other, min, max, pointer);
    }
    return text ? *text : json_.string(min, max);
  }

  // Whether an exclusive bound is at least as strict as an inclusive one.
  static bool is_stricter(const Schema& exclusive, const Schema& inclusive, bool lower) {
    const std::strong_ordering order = compare_numbers(exclusive, inclusive);
    return lower ? std::is_gteq(order) : std::is_lteq(order);
  }

  // The bounds as numbers; the stricter of `minimum` and `exclusiveMinimum`.
  static std::optional<Bound> bound(const Schema& plain, bool lower, const std::string& pointer) {
    const char* inclusive = lower ? "minimum" : "maximum";
    const char* exclusive = lower ? "exclusiveMinimum" : "exclusiveMaximum";
    std::optional<Bound> found;
    for (const char* name : {inclusive, exclusive}) {
      const auto at = plain.find(name);
      if (at == plain.end()) continue;
      if (!at->is_number()) throw schema_error(pointer_to(pointer, name), "expected a number");
      const Bound one{at->get<double>(), name == exclusive};
      if (!found || is_stricter(*at, plain[inclusive], lower)) found = one;
    }
    return found;
  }

  void check_multiple(const Schema& plain, const std::string& pointer, bool is_integer) {
    const auto multiple = plain.find("multipleOf");
    if (multiple == plain.end() || (is_integer && *multiple == 1)) return;
    throw schema_error(pointer_to(pointer, "multipleOf"), "this keyword is not supported");
  }

  Expression number(const Schema& plain, const std::string& pointer) {
    check_multiple(plain, pointer, false);
    const std::optional<Bound> min = bound(plain, true, pointer),
                               max = bound(plain, false, pointer);
    if (!min && !max) return json_.number();
    try {
      return decimals_between(builder_, min, max);
    } catch (const GrammarError& error) {
      throw schema_error(pointer_to(pointer, min ? "minimum" : "maximum"), error.what());
    }
  }

  // An integer bound; read exactly where it is written as an integer.
  static std::optional<std::int64_t> integer_bound(const Schema& plain, bool lower,
                                                   const std::string& pointer) {
    const std::optional<Bound> rough = bound(plain, lower, pointer);
    if (!rough) return std::nullopt;
    const auto exact =
        plain.find(rough->is_excluded ? (lower ? "exclusiveMinimum" : "exclusiveMaximum")
                                      : (lower ? "minimum" : "maximum"));
    const std::int64_t step = lower ? 1 : -1;
    if (std::abs(rough->value) > static_cast<double>(integer_max)) {
      return rough->value > 0 ? integer_max + 1 : -integer_max - 1;
    }
    if (exact->is_number_integer()) {
      return exact->get<std::int64_t>() + (rough->is_excluded ? step : 0);
    }
    const double whole = lower ? std::ceil(rough->value) : std::floor(rough->value);
    const bool moves = rough->is_excluded && whole == rough->value;
    return static_cast<std::int64_t>(whole) + (moves ? step : 0);
  }

  Expression integer(const Schema& plain, const std::string& pointer) {
    check_multiple(plain, pointer, true);
    const auto min = integer_bound(plain, true, pointer);
    const auto max = integer_bound(plain, false, pointer);
    if (!min && !max) return json_.integer();
    // Integers are written with up to 18 digits. A bound beyond them allows all of these, or none.
    return integers_between(builder_, std::max(min.value_or(-integer_max), -integer_max),
                            std::min(max.value_or(integer_max), integer_max));
  }

  Expression member(const std::string& name, const Schema& value, const std::string& pointer) {
    return builder_.sequence({builder_.literal('"' + json_.plain_text(name) + '"'), json_.colon(),
                              value_of(value, pointer)});
  }

  // The names that an object has to have, each once.
  static std::vector<std::string_view> required_names(const Schema& plain,
                                                      const std::string& pointer) {
    std::vector<std::string_view> names;
    std::unordered_set<std::string_view, text::KeyedHash> seen;
    for (const Schema& name : part_of(plain, "required", Schema::value_t::array)) {
      if (!name.is_string()) {
        throw schema_error(pointer_to(pointer, "required"), "expected a list of strings");
      }
      const std::string_view text = name.get_ref<const std::string&>();
      if (seen.insert(text).second) names.push_back(text);
    }
    return names;
  }

  Expression object(const Schema& plain, const std::string& pointer) {
    const Schema& properties = part_of(plain, "properties", Schema::value_t::object);
    const std::string place = pointer_to(pointer, "properties");
    if (!properties.is_object()) throw schema_error(place, "expected an object");
    const std::vector<std::string_view> required = required_names(plain, pointer);
    const std::unordered_set<std::string_view, text::KeyedHash> is_required(required.begin(),
                                                                            required.end());
    const auto rest = plain.find("additionalProperties");
    std::vector<GrammarBuilder::Member> members;
    std::vector<std::string> names;
    std::unordered_set<std::string_view, text::KeyedHash> is_listed;
    budget_.spend(64 * (properties.size() + required.size()));
    const HeldBytes held(budget_, 256 * (properties.size() + required.size()));
    for (const auto& item : properties.items()) {
      names.push_back(item.key());
      is_listed.insert(item.key());
      const Times times = is_required.contains(item.key()) ? Times::once : Times::optional;
      members.push_back({member(item.key(), item.value(), pointer_to(place, item.key())), times});
    }
    for (const std::string_view name : required) {
      if (is_listed.contains(name)) continue;
      names.emplace_back(name);
      const Schema& value = rest == plain.end() ? any_value() : *rest;
      members.push_back(
          {member(names.back(), value, pointer_to(pointer, "additionalProperties")), Times::once});
    }
    const std::uint32_t min = count(plain, "minProperties", 0, pointer);
    const std::uint32_t max = count(plain, "maxProperties", no_limit, pointer);
    const bool adds = adds_members(plain);
    if (adds && members.empty()) {
      return map(rest == plain.end() ? any_value() : *rest, min, max, pointer);
    }
    const bool needs_any = min == 1 && required.empty();
    if (min > required.size() && !needs_any) refuse_count(pointer, "minProperties");
    if (max < members.size() || (adds && max != no_limit)) refuse_count(pointer, "maxProperties");
    if (adds) members.push_back({other_member(*rest, names, pointer), Times::any});
    return braces(builder_.members(members, json_.comma(), needs_any));
  }

  [[noreturn]] static void refuse_count(const std::string& pointer, const char* name) {
    throw schema_error(pointer_to(pointer, name),
                       "supported only where the members that are required fulfil it");
  }

  Expression braces(Expression members) {
    return builder_.sequence({builder_.literal("{"), members, builder_.literal("}")});
  }

  Expression other_member(const Schema& value, const std::vector<std::string>& names,
                          const std::string& pointer) {
    return builder_.sequence({builder_.literal("\""), json_.other_key(names), json_.colon(),
                              value_of(value, pointer_to(pointer, "additionalProperties"))});
  }

  // An object with any names. The grammar cannot forbid that a name comes twice, so it could not
  // guarantee two different members.
  Expression map(const Schema& value, std::uint32_t min, std::uint32_t max,
                 const std::string& pointer) {
    if (min > 1) refuse_count(pointer, "minProperties");
    return braces(list(other_member(value, {}, pointer), min, max));
  }

  // min to max times `item`, with commas.
  Expression list(Expression item, std::uint32_t min, std::uint32_t max) {
    if (max < min) return builder_.nothing();
    if (max == 0) return builder_.empty();
    const Expression more =
        builder_.repeat(builder_.sequence({json_.comma(), item}), min > 0 ? min - 1 : 0,
                        max == no_limit ? no_limit : max - 1);
    const Expression some = builder_.sequence({item, more});
    return min == 0 ? builder_.optional(some) : some;
  }

  Expression array(const Schema& plain, const std::string& pointer) {
    const std::uint32_t min = count(plain, "minItems", 0, pointer);
    std::uint32_t max = count(plain, "maxItems", no_limit, pointer);
    const auto unique = plain.find("uniqueItems");
    if (unique != plain.end() && *unique == true && max > 1) {
      throw schema_error(pointer_to(pointer, "uniqueItems"), "this keyword is not supported");
    }
    const Schema& first = part_of(plain, "prefixItems", Schema::value_t::array);
    const auto items = plain.find("items");
    const std::string place = pointer_to(pointer, "items");
    if (first.empty()) {
      const Expression item = items == plain.end() ? json_.value() : value_of(*items, place);
      return brackets(list(item, min, max));
    }
    if (items != plain.end() && *items == false) {
      max = std::min(max, static_cast<std::uint32_t>(first.size()));
    }
    // Elements beyond those that the schema lists are written only if it describes them or demands
    // them.
    const bool has_more = items != plain.end() || min > first.size();
    const auto listed = static_cast<std::uint32_t>(first.size());
    if (!has_more) max = std::min(max, listed);
    if (max < min) return builder_.nothing();
    Expression rest = builder_.empty();
    if (max > listed) {
      const Expression item = items == plain.end() ? json_.value() : value_of(*items, place);
      rest =
          builder_.repeat(builder_.sequence({json_.comma(), item}), min > listed ? min - listed : 0,
                          max == no_limit ? no_limit : max - listed);
    }
    for (std::uint32_t i = std::min(listed, max); i-- > 0;) {
      const std::string item_place =
          pointer_to(pointer_to(pointer, "prefixItems"), std::to_string(i));
      std::vector<Expression> parts;
      if (i > 0) parts.push_back(json_.comma());
      parts.push_back(value_of(first[i], item_place));
      parts.push_back(rest);
      rest = builder_.sequence(std::move(parts));
      if (i >= min) rest = builder_.optional(rest);
    }
    return brackets(rest);
  }

  Expression brackets(Expression items) {
    return builder_.sequence({builder_.literal("["), items, builder_.literal("]")});
  }

  CompileBudget& budget_;
  SchemaMerger merger_;
  GrammarBuilder& builder_;
  JsonText& json_;
  std::map<std::string, GrammarBuilder::Rule> rules_;  // by the text of their schema
  std::deque<Part> open_;
};

// Without recursion: the schema may be nested deeper than the stack of a thread.
void check_nesting(const Schema& schema, std::size_t most) {
  std::vector<std::pair<const Schema*, std::size_t>> open = {{&schema, 0}};
  while (!open.empty()) {
    const auto [value, depth] = open.back();
    open.pop_back();
    if (depth > most) {
      throw GrammarError(fmt::format("the schema is nested deeper than {} levels", most));
    }
    for (const Schema& child : *value) {
      if (child.is_structured()) open.emplace_back(&child, depth + 1);
    }
  }
}

}  // namespace

Schema parse_schema(std::string_view text) {
  if (text.size() > schema_bytes_max) {
    throw GrammarError(
        fmt::format("the schema has {} bytes, the most is {}", text.size(), schema_bytes_max));
  }
  constexpr std::size_t values_max = std::size_t{1} << 17;
  try {
    return parse_limited_json(text, {"schema", values_max, values_max, schema_nesting_max}).value;
  } catch (const JsonError& error) {
    throw GrammarError(error.what());
  }
}

Grammar compile_json_schema(const Schema& schema, CompileBudget& budget) {
  if (schema.is_structured()) check_nesting(schema, schema_nesting_max);
  budget.hold(json_bytes(schema));
  GrammarBuilder builder(budget);
  JsonText json(builder);
  const GrammarBuilder::Rule root = builder.add_rule("the schema");
  builder.define(root, schema_values(json, schema, schema));
  Grammar grammar = builder.compile(root);
  grammar.warning = json.warning();
  return grammar;
}

Expression schema_values(JsonText& json, const Schema& part, const Schema& root) {
  try {
    return SchemaCompiler(root, json).compile(part);
  } catch (const Schema::exception& error) {  // a part of the schema is not of the expected kind
    throw GrammarError(fmt::format("schema: {}", error.what()));
  }
}

Grammar compile_json_schema(const Schema& schema) {
  CompileBudget budget;
  return compile_json_schema(schema, budget);
}

Grammar compile_json_object(CompileBudget& budget) {
  GrammarBuilder builder(budget);
  JsonText json(builder);
  const GrammarBuilder::Rule root = builder.add_rule("root");
  builder.define(root, json.object());
  return builder.compile(root);
}

}  // namespace sluice::constrain
