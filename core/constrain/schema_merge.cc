#include "core/constrain/schema_merge.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "core/constrain/characters.h"

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

// Keywords that change what is valid and are not supported at all.
constexpr std::array<std::string_view, 17> refused = {"not",
                                                      "if",
                                                      "patternProperties",
                                                      "propertyNames",
                                                      "dependentRequired",
                                                      "dependentSchemas",
                                                      "dependencies",
                                                      "contains",
                                                      "minContains",
                                                      "maxContains",
                                                      "unevaluatedItems",
                                                      "$dynamicRef",
                                                      "$recursiveRef",
                                                      "extends",
                                                      "disallow",
                                                      "divisibleBy",
                                                      "$vocabulary"};

bool is_combiner(std::string_view name) {
  return name == "allOf" || name == "anyOf" || name == "oneOf" || name == "$ref";
}

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

Schema both(const Schema& a, const Schema& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", Schema::array({a, b})}};
}

void check_keywords(const Schema& schema, const std::string& pointer) {
  for (const std::string_view name : refused) {
    if (schema.contains(name)) {
      throw schema_error(pointer_to(pointer, name), "this keyword is not supported");
    }
  }
  const auto id = schema.find("$id");
  if (id != schema.end() && !pointer.empty() &&
      !(id->is_string() && id->get_ref<const std::string&>().starts_with('#'))) {
    throw schema_error(pointer_to(pointer, "$id"), "a schema within the schema cannot have one");
  }
  const auto unevaluated = schema.find("unevaluatedProperties");
  if (unevaluated != schema.end() && *unevaluated != false && *unevaluated != true) {
    throw schema_error(pointer_to(pointer, "unevaluatedProperties"), "only false is supported");
  }
}

// Rewrites keywords of older drafts as those of the present one.
Schema modern(Schema schema, const std::string& pointer) {
  if (schema.contains("const")) {
    const Schema values = Schema::array({schema["const"]});
    if (schema.contains("enum") && schema["enum"].is_array() &&
        !has_element(schema["enum"], schema["const"])) {
      schema["enum"] = Schema::array();
    } else {
      schema["enum"] = values;
    }
    schema.erase("const");
  }
  if (schema.contains("items") && schema["items"].is_array()) {
    schema["prefixItems"] = schema["items"];
    schema.erase("items");
    if (schema.contains("additionalItems")) schema["items"] = schema["additionalItems"];
  }
  for (const auto& [exclusive, inclusive] :
       {std::pair{"exclusiveMinimum", "minimum"}, std::pair{"exclusiveMaximum", "maximum"}}) {
    if (!schema.contains(exclusive) || !schema[exclusive].is_boolean()) continue;
    if (schema[exclusive] == true && schema.contains(inclusive)) {
      schema[exclusive] = schema[inclusive];
      schema.erase(inclusive);
    } else {
      schema.erase(exclusive);
    }
  }
  for (const char* name : {"enum", "prefixItems", "required"}) {
    if (schema.contains(name) && !schema[name].is_array()) {
      throw schema_error(pointer_to(pointer, name), "expected an array");
    }
  }
  return schema;
}

void check_object(const Schema& value, const std::string& pointer) {
  if (!value.is_object()) throw schema_error(pointer, "expected an object");
}

// Joins `properties` and `additionalProperties` of b into a. Of each member both schemas hold, by
// the name in `properties` or else by `additionalProperties`.
void merge_members(Schema& a, const Schema& b, const std::string& pointer) {
  const auto rest_of = [](const Schema& schema) -> std::optional<Schema> {
    const auto rest = schema.find("additionalProperties");
    if (rest == schema.end()) return std::nullopt;
    return *rest;
  };
  const std::optional<Schema> rest_a = rest_of(a), rest_b = rest_of(b);
  Schema merged = Schema::object();
  const auto add = [&](const Schema& from, const Schema& other,
                       const std::optional<Schema>& other_rest) {
    const auto own = from.find("properties");
    if (own == from.end()) return;
    check_object(*own, pointer_to(pointer, "properties"));
    const auto theirs = other.find("properties");
    for (const auto& item : own->items()) {
      if (merged.contains(item.key())) continue;
      if (theirs != other.end() && theirs->contains(item.key())) {
        merged[item.key()] = both(item.value(), (*theirs)[item.key()]);
      } else {
        merged[item.key()] = other_rest ? both(item.value(), *other_rest) : item.value();
      }
    }
  };
  add(a, b, rest_b);
  add(b, a, rest_a);
  if (!merged.empty()) a["properties"] = std::move(merged);
  if (rest_b) a["additionalProperties"] = rest_a ? both(*rest_a, *rest_b) : *rest_b;
}

void merge_items(Schema& a, const Schema& b) {
  const Schema nothing = Schema::array();
  const Schema first = a.value("prefixItems", nothing), second = b.value("prefixItems", nothing);
  const Schema rest_a = a.value("items", Schema(true)), rest_b = b.value("items", Schema(true));
  Schema merged = Schema::array();
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    merged.push_back(
        both(i < first.size() ? first[i] : rest_a, i < second.size() ? second[i] : rest_b));
  }
  if (!merged.empty()) a["prefixItems"] = std::move(merged);
  if (a.contains("items") || b.contains("items")) a["items"] = both(rest_a, rest_b);
}

Schema common_values(const Schema& a, const Schema& b) {
  Schema common = Schema::array();
  for (const Schema& value : a) {
    if (has_element(b, value)) common.push_back(value);
  }
  return common;
}

Schema common_types(const Schema& a, const Schema& b, const std::string& pointer) {
  const Types types = types_of({{"type", a}}, pointer) & types_of({{"type", b}}, pointer);
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

// The plain schema of values that are valid for both.
Schema merge(Schema a, const Schema& b, const std::string& pointer) {
  merge_members(a, b, pointer);
  merge_items(a, b);
  for (const auto& item : b.items()) {
    const std::string& name = item.key();
    if (name == "properties" || name == "additionalProperties" || name == "items" ||
        name == "prefixItems") {
      continue;
    }
    if (!a.contains(name)) {
      a[name] = item.value();
      continue;
    }
    Schema& own = a[name];
    if (own == item.value()) continue;
    if (name == "type") {
      own = common_types(own, item.value(), pointer);
    } else if (name == "enum") {
      own = common_values(own, item.value());
    } else if (name == "required") {
      for (const Schema& member : item.value()) {
        if (!has_element(own, member)) own.push_back(member);
      }
    } else if (bound_rule(name) != BoundRule::none) {
      const bool takes_greater = bound_rule(name) == BoundRule::greater;
      if ((item.value() > own) == takes_greater) own = item.value();
    } else if (name == "uniqueItems") {
      own = true;
    } else if (name == "pattern" || name == "format" || name == "multipleOf") {
      throw schema_error(pointer_to(pointer, name),
                         "two different ones at one place (by allOf or $ref) are not supported");
    }  // all others say nothing about what is valid
  }
  return a;
}

bool is_number_between(const Schema& value, const Schema& plain) {
  const double number = value.get<double>();
  const auto bound = [&](const char* name, auto is_met) {
    const auto found = plain.find(name);
    return found == plain.end() || !found->is_number() || is_met(found->get<double>());
  };
  return bound("minimum", [&](double least) { return number >= least; }) &&
         bound("maximum", [&](double most) { return number <= most; }) &&
         bound("exclusiveMinimum", [&](double least) { return number > least; }) &&
         bound("exclusiveMaximum", [&](double most) { return number < most; });
}

bool has_length_between(const Schema& value, const Schema& plain) {
  std::string_view text = value.get_ref<const std::string&>();
  double length = 0;
  while (take_character(text)) ++length;
  const auto least = plain.find("minLength"), most = plain.find("maxLength");
  return (least == plain.end() || !least->is_number() || length >= least->get<double>()) &&
         (most == plain.end() || !most->is_number() || length <= most->get<double>());
}

bool requires_member(const Schema& plain, const std::string& name) {
  const auto required = plain.find("required");
  return required != plain.end() && has_element(*required, name);
}

const Schema* property_of(const Schema& plain, const std::string& name) {
  const auto properties = plain.find("properties");
  if (properties == plain.end() || !properties->is_object()) return nullptr;
  const auto found = properties->find(name);
  return found == properties->end() ? nullptr : &*found;
}

}  // namespace

GrammarError schema_error(std::string_view pointer, std::string_view what) {
  return GrammarError(fmt::format("schema, {}: {}", pointer.empty() ? "root" : pointer, what));
}

bool has_element(const Schema& array, const Schema& value) {
  return std::find(array.begin(), array.end(), value) != array.end();
}

std::string pointer_to(std::string_view pointer, std::string_view name) {
  std::string longer(pointer);
  longer += '/';
  for (const char c : name.substr(0, 100)) {
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
                       fmt::format("{} is no type", name.dump().substr(0, 100)));
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
    case Schema::value_t::number_float: {
      const double number = value.get<double>();
      return number ==
                     static_cast<double>(static_cast<std::int64_t>(std::clamp(number, -1e15, 1e15)))
                 ? type_integer
                 : type_fraction;
    }
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

void SchemaMerger::spend(const Schema& schema) {
  spent_bytes_ += 64 + schema.size() * 64;
  if (spent_bytes_ > limits_.work_bytes_max) {
    throw GrammarError("the schema takes too long to compile: make it smaller");
  }
}

const Schema& SchemaMerger::target(const Schema& reference, const std::string& pointer) const {
  const std::string place = pointer_to(pointer, "$ref");
  if (!reference.is_string()) throw schema_error(place, "expected a string");
  const std::string& name = reference.get_ref<const std::string&>();
  if (name != "#" && !name.starts_with("#/")) {
    throw schema_error(place, fmt::format("\"{}\" is not supported: only references within the "
                                          "schema (#/...) are",
                                          name.substr(0, 100)));
  }
  std::string path;
  for (std::string_view rest = std::string_view(name).substr(1); !rest.empty();) {
    const char c = rest[0];
    rest.remove_prefix(1);
    std::optional<char32_t> escaped;
    if (c == '%') escaped = take_hexadecimal(rest, 2);
    path += escaped ? static_cast<char>(*escaped) : c;
  }
  try {
    return root_.at(Schema::json_pointer(path));
  } catch (const Schema::exception&) {
    throw schema_error(place, fmt::format("\"{}\" is not in the schema", name.substr(0, 100)));
  }
}

std::vector<Schema> SchemaMerger::ways(const Schema& schema, const std::string& pointer) {
  std::vector<Schema> found = {Schema::object()};
  expand(schema, pointer, 0, found);
  return found;
}

void SchemaMerger::multiply(std::vector<Schema>& ways, const std::vector<Schema>& more,
                            const std::string& pointer) {
  if (ways.size() * more.size() > limits_.ways_max) {
    throw schema_error(
        pointer, fmt::format("anyOf and oneOf combine to more than {} ways", limits_.ways_max));
  }
  std::vector<Schema> product;
  for (const Schema& a : ways) {
    for (const Schema& b : more) {
      spend(a);
      spend(b);
      product.push_back(merge(a, b, pointer));
    }
  }
  ways = std::move(product);
}

void SchemaMerger::expand(const Schema& schema, const std::string& pointer, unsigned depth,
                          std::vector<Schema>& ways) {
  if (schema == true) return;
  if (schema == false) return ways.clear();
  check_object(schema, pointer);
  if (depth > limits_.depth_max) {
    throw schema_error(pointer, fmt::format("allOf, anyOf and $ref are nested deeper than {} "
                                            "levels, or refer to themselves",
                                            limits_.depth_max));
  }
  check_keywords(schema, pointer);
  spend(schema);
  if (schema.contains("unevaluatedProperties")) return expand_closed(schema, pointer, depth, ways);
  Schema own = Schema::object();
  for (const auto& item : schema.items()) {
    if (!is_combiner(item.key())) own[item.key()] = item.value();
  }
  multiply(ways, {modern(std::move(own), pointer)}, pointer);
  if (schema.contains("$ref")) {
    expand(target(schema["$ref"], pointer), pointer_to(pointer, "$ref"), depth + 1, ways);
  }
  for (const char* name : {"allOf", "anyOf", "oneOf"}) {
    if (!schema.contains(name)) continue;
    const Schema& list = schema[name];
    const std::string place = pointer_to(pointer, name);
    if (!list.is_array() || list.empty()) throw schema_error(place, "expected a list of schemas");
    if (name == std::string_view("allOf")) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        expand(list[i], pointer_to(place, std::to_string(i)), depth + 1, ways);
      }
    } else {
      expand_branches(list, place, depth, name == std::string_view("oneOf"), ways);
    }
  }
}

// unevaluatedProperties forbids the members that its own schema, with its combiners, does not name;
// what stands beside that schema does not count.
void SchemaMerger::expand_closed(const Schema& schema, const std::string& pointer, unsigned depth,
                                 std::vector<Schema>& ways) {
  Schema open = schema;
  open.erase("unevaluatedProperties");
  if (schema["unevaluatedProperties"] == true) return expand(open, pointer, depth, ways);
  std::vector<Schema> closed = {Schema::object()};
  expand(open, pointer, depth, closed);
  for (Schema& way : closed) way.emplace("additionalProperties", false);  // unless it has one
  multiply(ways, closed, pointer);
}

void SchemaMerger::expand_branches(const Schema& list, const std::string& pointer, unsigned depth,
                                   bool exclusive, std::vector<Schema>& ways) {
  std::vector<std::vector<Schema>> branches;
  std::size_t count = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    branches.push_back(ways);
    expand(list[i], pointer_to(pointer, std::to_string(i)), depth + 1, branches.back());
    count += branches.back().size();
    if (count > limits_.ways_max) {
      throw schema_error(pointer, fmt::format("more than {} ways", limits_.ways_max));
    }
  }
  if (exclusive) check_disjoint(branches, pointer);
  ways.clear();
  for (std::vector<Schema>& branch : branches) {
    std::ranges::move(branch, std::back_inserter(ways));
  }
}

void SchemaMerger::check_disjoint(const std::vector<std::vector<Schema>>& branches,
                                  const std::string& pointer) {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (std::size_t j = 0; j < branches.size(); ++j) {
      if (i == j) continue;
      for (const Schema& written : branches[i]) {
        for (const Schema& other : branches[j]) {
          if (are_apart(written, other, 0)) continue;
          throw schema_error(
              pointer, fmt::format("oneOf is supported only where no value can match two branches, "
                                   "but one may match {} and {}: use anyOf, or a member that tells "
                                   "them apart",
                                   i, j));
        }
      }
    }
  }
}

// Whether no value that is written for `written` is valid for `other`.
bool SchemaMerger::are_apart(const Schema& written, const Schema& other, unsigned depth) {
  spend(written);
  // A schema without `type` is valid for all types that its keywords do not speak of.
  const Types common =
      types_of(written, "") & (other.contains("type") ? types_of(other, "") : all_types);
  if (common == 0) return true;
  if (written.contains("enum") && (other.contains("type") || other.contains("enum"))) {
    return std::ranges::all_of(written["enum"], [&](const Schema& value) {
      const bool is_listed = !other.contains("enum") || has_element(other["enum"], value);
      return !is_listed || !is_plainly_valid(value, other);
    });
  }
  if (!other.contains("type") || common != type_object) return false;
  return values_are_apart(written, other, depth);
}

bool SchemaMerger::values_are_apart(const Schema& written, const Schema& other, unsigned depth) {
  constexpr unsigned depth_max = 4;
  const Schema none = Schema::array();
  for (const Schema& name : other.value("required", none)) {
    if (!name.is_string()) continue;
    const bool may_add =
        written.contains("additionalProperties") && written["additionalProperties"] != false;
    const auto& text = name.get_ref<const std::string&>();
    if (!may_add && property_of(written, text) == nullptr && !requires_member(written, text)) {
      return true;
    }
  }
  for (const Schema& name : written.value("required", none)) {
    if (!name.is_string()) continue;
    const auto& text = name.get_ref<const std::string&>();
    const Schema* theirs = property_of(other, text);
    const bool is_closed =
        other.contains("additionalProperties") && other["additionalProperties"] == false;
    if (theirs == nullptr && is_closed) return true;
    const Schema* own = property_of(written, text);
    if (theirs == nullptr || own == nullptr || depth == depth_max) continue;
    const std::vector<Schema> own_ways = ways(*own, pointer_to("", text));
    const std::vector<Schema> their_ways = ways(*theirs, pointer_to("", text));
    const bool apart = std::ranges::all_of(own_ways, [&](const Schema& a) {
      return std::ranges::all_of(their_ways,
                                 [&](const Schema& b) { return are_apart(a, b, depth + 1); });
    });
    if (apart) return true;
  }
  return false;
}

}  // namespace sluice::constrain
