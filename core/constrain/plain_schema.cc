#include "core/constrain/plain_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/constrain/characters.h"
#include "core/constrain/formats.h"
#include "core/constrain/grammar_builder.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::constrain {
namespace {

struct TypeName {
  std::string_view name;
  Types types;
};
constexpr std::array<TypeName, 7> type_names = {{{"null", type_null},
                                                 {"boolean", type_boolean},
                                                 {"object", type_object},
                                                 {"array", type_array},
                                                 {"string", type_string},
                                                 {"integer", type_integer},
                                                 {"number", type_number}}};

struct KeywordType {
  std::string_view keyword;
  Types types;
};
constexpr std::array<KeywordType, 18> typed_keywords = {{{"properties", type_object},
                                                         {"required", type_object},
                                                         {"additionalProperties", type_object},
                                                         {"minProperties", type_object},
                                                         {"maxProperties", type_object},
                                                         {"items", type_array},
                                                         {"prefixItems", type_array},
                                                         {"minItems", type_array},
                                                         {"maxItems", type_array},
                                                         {"uniqueItems", type_array},
                                                         {"minLength", type_string},
                                                         {"maxLength", type_string},
                                                         {"pattern", type_string},
                                                         {"minimum", type_number},
                                                         {"maximum", type_number},
                                                         {"exclusiveMinimum", type_number},
                                                         {"exclusiveMaximum", type_number},
                                                         {"multipleOf", type_number}}};

// Which bound of two holds.
enum class BoundRule : std::uint8_t { none, greater, smaller };
BoundRule bound_rule(std::string_view name) {
  for (const char* lower :
       {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}) {
    if (name == lower) return BoundRule::greater;
  }
  for (const char* upper :
       {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}) {
    if (name == upper) return BoundRule::smaller;
  }
  return BoundRule::none;
}

// A whole number against one that may have a fraction.
template <class Whole>
std::strong_ordering compare_whole(Whole whole, double other) {
  constexpr double past_unsigned = 0x1p64, past_signed = 0x1p63;
  if (other >= past_unsigned) return std::strong_ordering::less;
  if (other < -past_signed) return std::strong_ordering::greater;
  const double floor = std::floor(other);
  const auto against = [&](auto floored) {
    if (std::cmp_less(whole, floored)) return std::strong_ordering::less;
    if (std::cmp_greater(whole, floored)) return std::strong_ordering::greater;
    return other > floor ? std::strong_ordering::less : std::strong_ordering::equal;
  };
  return floor >= past_signed ? against(static_cast<std::uint64_t>(floor))
                              : against(static_cast<std::int64_t>(floor));
}

// Calls `use` with the number as it is held.
template <class Use>
std::strong_ordering with_number(const Schema& number, const Use& use) {
  if (number.is_number_unsigned()) return use(number.get<std::uint64_t>());
  if (number.is_number_integer()) return use(number.get<std::int64_t>());
  return use(number.get<double>());
}

bool is_number_between(const Schema& value, const Schema& plain) {
  const auto bound = [&](const char* name, auto is_met) {
    const auto found = plain.find(name);
    return found == plain.end() || !found->is_number() || is_met(compare_numbers(value, *found));
  };
  return bound("minimum", std::is_gteq) && bound("maximum", std::is_lteq) &&
         bound("exclusiveMinimum", std::is_gt) && bound("exclusiveMaximum", std::is_lt);
}

bool has_length_between(const Schema& value, const Schema& plain) {
  std::string_view text = value.get_ref<const std::string&>();
  double length = 0;
  while (take_character(text)) ++length;
  const auto least = plain.find("minLength"), most = plain.find("maxLength");
  return (least == plain.end() || !least->is_number() || length >= least->get<double>()) &&
         (most == plain.end() || !most->is_number() || length <= most->get<double>());
}

// Whether a format forbids any text.
bool constrains(const Schema& format) {
  return format.is_string() &&
         pattern_of_format(format.get_ref<const std::string&>(), GrammarBuilder::unlimited);
}

}  // namespace

GrammarError schema_error(std::string_view pointer, std::string_view what) {
  return GrammarError(fmt::format("schema, {}: {}", pointer.empty() ? "root" : pointer, what));
}

std::strong_ordering compare_numbers(const Schema& a, const Schema& b) {
  return with_number(a, [&](auto left) {
    return with_number(b, [&](auto right) {
      constexpr bool left_is_whole = std::is_integral_v<decltype(left)>;
      constexpr bool right_is_whole = std::is_integral_v<decltype(right)>;
      if constexpr (left_is_whole && right_is_whole) {
        if (std::cmp_equal(left, right)) return std::strong_ordering::equal;
        return std::cmp_less(left, right) ? std::strong_ordering::less
                                          : std::strong_ordering::greater;
      } else if constexpr (left_is_whole) {
        return compare_whole(left, right);
      } else if constexpr (right_is_whole) {
        const std::strong_ordering order = compare_whole(right, left);
        if (std::is_eq(order)) return order;
        return std::is_lt(order) ? std::strong_ordering::greater : std::strong_ordering::less;
      } else {
        if (left == right) return std::strong_ordering::equal;
        return left < right ? std::strong_ordering::less : std::strong_ordering::greater;
      }
    });
  });
}

bool is_same(const Schema& a, const Schema& b) {
  if (a.is_number() && b.is_number()) return std::is_eq(compare_numbers(a, b));
  if (a.type() != b.type()) return false;
  if (!a.is_structured()) return a == b;
  if (a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), is_same);
  const auto by_name = [](const Schema& object) {
    std::vector<const Schema::object_t::value_type*> members;
    for (const auto& member : object.get_ref<const Schema::object_t&>()) members.push_back(&member);
    std::ranges::sort(members, {},
                      [](const auto* member) { return std::string_view(member->first); });
    return members;
  };
  return std::ranges::equal(by_name(a), by_name(b), [](const auto* one, const auto* other) {
    return one->first == other->first && is_same(one->second, other->second);
  });
}

bool has_element(const Schema& array, const Schema& value) {
  return std::ranges::any_of(array, [&](const Schema& one) { return is_same(one, value); });
}

std::string pointer_to(std::string_view pointer, std::string_view name) {
  std::string longer(pointer);
  if (longer.size() > pointer_bytes_max) return longer.ends_with("/...") ? longer : longer + "/...";
  longer += '/';
  for (const char c : text::escaped(name, 100)) {
    if (c == '~') {
      longer += "~0";
    } else if (c == '/') {
      longer += "~1";
    } else {
      longer += c;
    }
  }
  return longer;
}

Types types_of(const Schema& plain, std::string_view pointer) {
  const auto given = plain.find("type");
  Types types = 0;
  if (given == plain.end()) {
    for (const KeywordType& entry : typed_keywords) {
      if (plain.contains(entry.keyword)) types |= entry.types;
    }
    if (plain.contains("enum") || types == 0) return all_types;
    return types;
  }
  const auto add = [&](const Schema& name) {
    for (const TypeName& entry : type_names) {
      if (name == entry.name) {
        types |= entry.types;
        return;
      }
    }
    throw schema_error(pointer_to(pointer, "type"),
                       fmt::format("{} is no type", text::escaped(name.dump(), 100)));
  };
  if (given->is_array()) {
    std::ranges::for_each(*given, add);
  } else {
    add(*given);
  }
  return types;
}

Types type_of_value(const Schema& value) {
  switch (value.type()) {
    case Schema::value_t::null:
      return type_null;
    case Schema::value_t::boolean:
      return type_boolean;
    case Schema::value_t::object:
      return type_object;
    case Schema::value_t::array:
      return type_array;
    case Schema::value_t::string:
      return type_string;
    case Schema::value_t::number_float:
      return value.get<double>() == std::trunc(value.get<double>()) ? type_integer : type_fraction;
    default:
      return type_integer;
  }
}

bool is_plainly_valid(const Schema& value, const Schema& plain) {
  const Types type = type_of_value(value);
  if ((types_of(plain, "") & type) == 0) return false;
  if ((type & type_number) != 0) return is_number_between(value, plain);
  return type != type_string || has_length_between(value, plain);
}

bool adds_members(const Schema& plain) {
  const auto rest = plain.find("additionalProperties");
  if (rest != plain.end()) return *rest != false;
  const auto names_none = [&](const char* keyword) {
    const auto found = plain.find(keyword);
    return found == plain.end() || found->empty();
  };
  return names_none("properties") && names_none("required");
}

bool forbids_all(const Schema& schema) {
  if (schema.is_boolean()) return !schema.get<bool>();
  if (!schema.is_object()) return false;
  const auto denied = schema.find("not");
  return denied != schema.end() && (*denied == true || (denied->is_object() && denied->empty()));
}

std::uint64_t reading_steps(const Schema& schema) {
  return 8 + json_bytes(schema) / 8;
}

std::uint64_t copying_steps(const Schema& schema) {
  constexpr std::uint64_t slower = 8;
  return slower * reading_steps(schema);
}

// ---- Two plain schemas become one ----

bool PlainMerger::is_among(const Schema& list, const Schema& value) {
  const std::size_t bytes_a_step = value.is_structured() ? 8 : 64;  // members are sorted
  budget_.spend(list.size() * (1 + json_bytes(value) / bytes_a_step));
  return has_element(list, value);
}

// The member of an object; null when there is none. `Object` may be const.
template <class Object>
Object* PlainMerger::find(Object& object, const std::string& name) {
  budget_.spend(4 + object.size());
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// Values that are valid for both. Several schemas stand side by side in one "allOf", so that no
// schema becomes deeper than it was written.
void PlainMerger::join(Schema& a, const Schema& b) {
  budget_.spend(copying_steps(b));
  if (b == true || is_same(a, b)) return;
  const auto is_list = [](const Schema& schema) {
    return schema.is_object() && schema.size() == 1 && schema.begin().key() == "allOf" &&
           schema.begin()->is_array();
  };
  if (a == true || forbids_all(b)) {
    a = b;
  } else if (!forbids_all(a)) {
    if (!is_list(a)) a = {{"allOf", Schema::array({std::move(a)})}};
    Schema& list = a["allOf"];
    const Schema one = Schema::array({b});
    for (const Schema& more : is_list(b) ? b["allOf"] : one) {
      if (!is_among(list, more)) list.push_back(more);
    }
  }
}

// Joins `properties` and `additionalProperties` of b into a. Of each member both schemas hold, by
// the name in `properties` or else by `additionalProperties`.
void PlainMerger::merge_members(Schema& a, const Schema& b) {
  static const Schema none = Schema::object();
  const Schema* theirs = find(b, "properties");
  const Schema* their_rest = find(b, "additionalProperties");
  for (const Schema* properties : {find(std::as_const(a), "properties"), theirs}) {
    if (properties != nullptr && !properties->is_object()) {
      throw schema_error(pointer_to(pointer_, "properties"), "expected an object");
    }
  }
  if (their_rest != nullptr && a.contains("properties")) {
    const Schema& others = theirs == nullptr ? none : *theirs;
    for (auto& item : a["properties"].items()) {
      if (find(others, item.key()) == nullptr) join(item.value(), *their_rest);
    }
  }
  if (theirs != nullptr && !theirs->empty()) {
    const Schema* rest = find(a, "additionalProperties");
    const Schema own_rest = rest == nullptr ? Schema(true) : *rest;
    if (!a.contains("properties")) a["properties"] = Schema::object();
    Schema& own = a["properties"];
    for (const auto& item : theirs->items()) {
      if (Schema* known = find(own, item.key())) {
        join(*known, item.value());
      } else {
        budget_.spend(copying_steps(item.value()));
        auto& members = own.get_ref<Schema::object_t&>();
        reserve_members(members, members.size() + 1);
        members.emplace_back(item.key(), item.value());
        join(own.back(), own_rest);
      }
    }
  }
  if (their_rest == nullptr) return;
  if (Schema* own_rest = find(a, "additionalProperties")) {
    join(*own_rest, *their_rest);
  } else {
    a["additionalProperties"] = *their_rest;
  }
}

void PlainMerger::merge_items(Schema& a, const Schema& b) {
  const bool has_first = a.contains("prefixItems") || b.contains("prefixItems");
  const bool has_rest = a.contains("items") || b.contains("items");
  const Schema rest_a = a.value("items", Schema(true)), rest_b = b.value("items", Schema(true));
  budget_.spend(copying_steps(rest_a) + copying_steps(rest_b));
  if (has_first) {
    static const Schema none = Schema::array();
    if (!a.contains("prefixItems")) a["prefixItems"] = none;
    Schema& first = a["prefixItems"];
    const auto other = b.find("prefixItems");
    const Schema& second = other == b.end() ? none : *other;
    while (first.size() < second.size()) first.push_back(rest_a);
    for (std::size_t i = 0; i < first.size(); ++i) {
      join(first[i], i < second.size() ? second[i] : rest_b);
    }
  }
  if (!has_rest) return;
  Schema rest = rest_a;
  join(rest, rest_b);
  a["items"] = std::move(rest);
}

Schema PlainMerger::common_values(const Schema& a, const Schema& b) {
  Schema common = Schema::array();
  for (const Schema& value : a) {
    if (is_among(b, value)) common.push_back(value);
  }
  return common;
}

Schema PlainMerger::common_types(const Schema& a, const Schema& b) {
  const Types types = types_of({{"type", a}}, pointer_) & types_of({{"type", b}}, pointer_);
  Schema names = Schema::array();
  if ((types & type_number) == type_number) names.push_back("number");
  for (const TypeName& entry : type_names) {
    const bool is_part = entry.types == type_integer && (types & type_fraction) != 0;
    if (entry.types != type_number && !is_part && (types & entry.types) != 0) {
      names.push_back(entry.name);
    }
  }
  return names;
}

void PlainMerger::merge(Schema& a, const Schema& b) {
  budget_.spend(64 + 64 * b.size());
  reserve_members(a.get_ref<Schema::object_t&>(), a.size() + b.size());
  merge_members(a, b);
  merge_items(a, b);
  for (const auto& item : b.items()) {
    const std::string& name = item.key();
    if (name == "properties" || name == "additionalProperties" || name == "items" ||
        name == "prefixItems") {
      continue;
    }
    budget_.spend(copying_steps(item.value()));
    Schema* own = find(a, name);
    if (own == nullptr) {
      a[name] = item.value();
    } else if (!is_same(*own, item.value())) {
      name == "format" ? merge_format(a, item.value()) : merge_keyword(name, *own, item.value());
    }
  }
}

// Of two formats one may be known: it stays, and the other is listed for the warning that names it.
void PlainMerger::merge_format(Schema& a, const Schema& other) {
  Schema unknown = other;
  if (constrains(other)) {
    if (constrains(a["format"])) refuse_two("format");
    std::swap(a["format"], unknown);
  }
  a[other_formats].push_back(std::move(unknown));
}

void PlainMerger::refuse_two(const std::string& name) const {
  throw schema_error(pointer_to(pointer_, name),
                     "two different ones at one place (by allOf or $ref) are not supported");
}

void PlainMerger::merge_keyword(const std::string& name, Schema& own, const Schema& other) {
  if (name == "type") {
    own = common_types(own, other);
  } else if (name == "enum") {
    own = common_values(own, other);
  } else if (name == "required" || name == chosen_branches || name == other_formats) {
    for (const Schema& member : other) {
      if (!is_among(own, member)) own.push_back(member);
    }
  } else if (bound_rule(name) != BoundRule::none) {
    const bool takes_greater = bound_rule(name) == BoundRule::greater;
    const bool are_numbers = own.is_number() && other.is_number();
    const bool is_greater = are_numbers ? std::is_gt(compare_numbers(other, own)) : other > own;
    if (is_greater == takes_greater) own = other;
  } else if (name == "uniqueItems") {
    own = true;
  } else if (name == "pattern" || name == "multipleOf") {
    refuse_two(name);
  }  // all others say nothing about what is valid
}

}  // namespace sluice::constrain
