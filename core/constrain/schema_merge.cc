#include "core/constrain/schema_merge.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>

#include "base/number.h"
#include "core/constrain/characters.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::constrain {
namespace {

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

// Whether a keyword says something about what is valid; the others need not be copied along. There
// are few of these, however many members a schema has.
bool is_plain_keyword(std::string_view name) {
  constexpr std::array<std::string_view, 23> keywords = {"type",
                                                         "enum",
                                                         "const",
                                                         "properties",
                                                         "required",
                                                         "additionalProperties",
                                                         "minProperties",
                                                         "maxProperties",
                                                         "items",
                                                         "prefixItems",
                                                         "additionalItems",
                                                         "minItems",
                                                         "maxItems",
                                                         "uniqueItems",
                                                         "minLength",
                                                         "maxLength",
                                                         "pattern",
                                                         "format",
                                                         "minimum",
                                                         "maximum",
                                                         "exclusiveMinimum",
                                                         "exclusiveMaximum",
                                                         "multipleOf"};
  return std::ranges::find(keywords, name) != keywords.end();
}

void check_keywords(const Schema& schema, const std::string& pointer, bool is_root) {
  for (const std::string_view name : refused) {
    if (schema.contains(name)) {
      throw schema_error(pointer_to(pointer, name), "this keyword is not supported");
    }
  }
  const auto id = schema.find("$id");
  if (id != schema.end() && !is_root &&
      !(id->is_string() && id->get_ref<const std::string&>().starts_with('#'))) {
    throw schema_error(pointer_to(pointer, "$id"), "a schema within the schema cannot have one");
  }
  const auto unevaluated = schema.find("unevaluatedProperties");
  if (unevaluated != schema.end() && !forbids_all(*unevaluated) && *unevaluated != true) {
    throw schema_error(pointer_to(pointer, "unevaluatedProperties"), "only false is supported");
  }
}

// Rewrites keywords of older drafts as those of the present one.
Schema modern(Schema schema, const std::string& pointer) {
  if (schema.contains("const")) {
    Schema values = Schema::array({schema["const"]});
    if (schema.contains("enum") && schema["enum"].is_array() &&
        !has_element(schema["enum"], schema["const"])) {
      schema["enum"] = Schema::array();
    } else {
      schema["enum"] = std::move(values);
    }
    schema.erase("const");
  }
  if (schema.contains("items") && schema["items"].is_array()) {
    Schema first = std::move(schema["items"]);
    schema["prefixItems"] = std::move(first);
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
  for (const char* name : {"additionalProperties", "items"}) {
    if (schema.contains(name) && forbids_all(schema[name])) schema[name] = false;
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

std::size_t size_of(const Schema& plain, const char* name) {
  const auto found = plain.find(name);
  return found == plain.end() ? 0 : found->size();
}

// A text without the escapes that URIs have.
std::string without_percents(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    const auto escaped = c == '%' ? take_hexadecimal(text, 2) : std::nullopt;
    plain += escaped ? static_cast<char>(*escaped) : c;
  }
  return plain;
}

// Takes the next step of a JSON pointer, which begins with a slash.
std::string take_step(std::string_view& rest) {
  rest.remove_prefix(1);
  const std::string_view step = rest.substr(0, rest.find('/'));
  rest.remove_prefix(step.size());
  return name_of_step(step);
}

// One more call within others.
class Counted {
 public:
  explicit Counted(unsigned& calls) : calls_(++calls) {}
  ~Counted() { --calls_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  unsigned& calls_;
};

}  // namespace

bool says_what_is_valid(std::string_view keyword) {
  return is_plain_keyword(keyword) || std::ranges::find(refused, keyword) != refused.end() ||
         keyword == "unevaluatedProperties" || keyword == "$id";
}

const Schema& SchemaMerger::target(const Schema& reference, const std::string& pointer) {
  const std::string place = pointer_to(pointer, "$ref");
  if (!reference.is_string()) throw schema_error(place, "expected a string");
  const std::string& name = reference.get_ref<const std::string&>();
  if (name != "#" && !name.starts_with("#/")) {
    throw schema_error(place, fmt::format("\"{}\" is not supported: only references within the "
                                          "schema (#/...) are",
                                          text::escaped(name, 100)));
  }
  budget_.spend(name.size());
  const std::string path = without_percents(std::string_view(name).substr(1));
  const Schema* found = &root_;
  for (std::string_view rest = path; !rest.empty();) {
    found = member_at(*found, take_step(rest));
    if (found == nullptr) {
      throw schema_error(place,
                         fmt::format("\"{}\" is not in the schema", text::escaped(name, 100)));
    }
  }
  return *found;
}

// The member of an object, or the element of an array; null when there is none.
const Schema* SchemaMerger::member_at(const Schema& value, const std::string& name) {
  budget_.spend(4 + value.size());
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : &*found;
  }
  const auto index = base::whole_number<std::size_t>(name);
  return value.is_array() && index && *index < value.size() ? &value[*index] : nullptr;
}

// While two branches are compared, a oneOf within them may as well be an anyOf.
Ways SchemaMerger::ways(const Schema& schema, const std::string& pointer) {
  Ways found{{Schema::object()}, HeldBytes(budget_)};
  expand(schema, pointer, found);
  if (compared_ != 0) return found;
  check_choices(found.list);
  one_ofs_.clear();
  for (Schema& way : found.list) way.erase(chosen_branches);
  return found;
}

Ways SchemaMerger::copy_of(const Ways& ways) {
  Ways copy{{}, HeldBytes(budget_)};
  for (const Schema& way : ways.list) {
    budget_.spend(copying_steps(way));
    copy.held.add(json_bytes(way));
  }
  copy.list = ways.list;
  return copy;
}

void SchemaMerger::multiply(Ways& ways, const std::vector<Schema>& more,
                            const std::string& pointer) {
  if (ways.list.size() * more.size() > ways_max) {
    throw schema_error(pointer,
                       fmt::format("anyOf and oneOf combine to more than {} ways", ways_max));
  }
  PlainMerger merger(budget_, pointer);
  if (more.size() == 1) {  // in place: what was merged already is not copied
    ways.held.add(ways.list.size() * json_bytes(more[0]));
    for (Schema& way : ways.list) merger.merge(way, more[0]);
    return;
  }
  Ways product{{}, HeldBytes(budget_)};
  for (const Schema& one : ways.list) {
    for (const Schema& other : more) {
      budget_.spend(copying_steps(one));
      product.held.add(json_bytes(one) + json_bytes(other));
      product.list.push_back(one);
      merger.merge(product.list.back(), other);
    }
  }
  ways = std::move(product);
}

void SchemaMerger::expand(const Schema& schema, const std::string& pointer, Ways& ways) {
  if (schema == true) return;
  if (forbids_all(schema)) return ways.list.clear();
  check_object(schema, pointer);
  if (levels_ == levels_max) {
    throw schema_error(pointer, fmt::format("allOf, anyOf and $ref are nested deeper than {} "
                                            "levels, or refer to themselves",
                                            levels_max));
  }
  const Counted level(levels_);
  budget_.spend(64 + 64 * schema.size());
  // A reference may lead to the root again.
  check_keywords(schema, pointer, pointer.empty() || &schema == &root_);
  if (schema.contains("unevaluatedProperties")) return expand_closed(schema, pointer, ways);
  std::vector<Schema> own = {Schema::object()};
  for (const auto& item : schema.items()) {
    if (!is_plain_keyword(item.key())) continue;
    budget_.spend(copying_steps(item.value()));
    reserve_members(own[0].get_ref<Schema::object_t&>(), own[0].size() + 1);
    own[0][item.key()] = item.value();
  }
  const HeldBytes held(budget_, json_bytes(own[0]));
  own[0] = modern(std::move(own[0]), pointer);
  multiply(ways, own, pointer);
  if (schema.contains("$ref")) {
    expand(target(schema["$ref"], pointer), pointer_to(pointer, "$ref"), ways);
  }
  for (const char* name : {"allOf", "anyOf", "oneOf"}) {
    if (!schema.contains(name)) continue;
    const Schema& list = schema[name];
    const std::string place = pointer_to(pointer, name);
    if (!list.is_array() || list.empty()) throw schema_error(place, "expected a list of schemas");
    if (name == std::string_view("allOf")) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        expand(list[i], pointer_to(place, std::to_string(i)), ways);
      }
    } else {
      expand_branches(list, place, name == std::string_view("oneOf"), ways);
    }
  }
}

// unevaluatedProperties forbids the members that its own schema, with its combiners, does not name;
// what stands beside that schema does not count.
void SchemaMerger::expand_closed(const Schema& schema, const std::string& pointer, Ways& ways) {
  budget_.spend(copying_steps(schema));
  const HeldBytes held(budget_, json_bytes(schema));
  Schema open = schema;
  open.erase("unevaluatedProperties");
  if (schema["unevaluatedProperties"] == true) return expand(open, pointer, ways);
  Ways closed{{Schema::object()}, HeldBytes(budget_)};
  expand(open, pointer, closed);
  for (Schema& way : closed.list) way.emplace("additionalProperties", false);  // unless it has one
  multiply(ways, closed.list, pointer);
}

void SchemaMerger::expand_branches(const Schema& list, const std::string& pointer, bool exclusive,
                                   Ways& ways) {
  std::vector<Ways> branches;
  std::size_t count = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    branches.push_back(copy_of(ways));
    expand(list[i], pointer_to(pointer, std::to_string(i)), branches.back());
    count += branches.back().list.size();
    if (count > ways_max) {
      throw schema_error(pointer, fmt::format("more than {} ways", ways_max));
    }
  }
  const bool is_checked = exclusive && compared_ == 0;
  const std::size_t number = one_ofs_.size();
  Ways all{{}, HeldBytes(budget_)};
  for (std::size_t i = 0; i < branches.size(); ++i) {
    Ways branch = is_checked ? copy_of(branches[i]) : std::move(branches[i]);
    for (Schema& way : branch.list) {
      if (is_checked) way[chosen_branches].push_back(Schema::array({number, i}));
      all.held.add(json_bytes(way));
      all.list.push_back(std::move(way));
    }
  }
  if (is_checked) one_ofs_.push_back({std::move(branches), pointer});
  ways = std::move(all);
}

void SchemaMerger::check_choices(const std::vector<Schema>& ways) {
  for (const Schema& way : ways) {
    const auto chosen = way.find(chosen_branches);
    if (chosen == way.end()) continue;
    for (const Schema& choice : *chosen) {
      const OneOf& one_of = one_ofs_[choice[0].get<std::size_t>()];
      check_apart(way, one_of.branches, choice[1].get<std::size_t>(), one_of.pointer);
    }
  }
}

void SchemaMerger::check_disjoint(const std::vector<Ways>& branches, const std::string& pointer) {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (const Schema& written : branches[i].list) check_apart(written, branches, i, pointer);
  }
}

// Throws unless no value that is written for `written`, which came of the branch `chosen`, is valid
// for another one.
void SchemaMerger::check_apart(const Schema& written, const std::vector<Ways>& branches,
                               std::size_t chosen, const std::string& pointer) {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    if (i == chosen) continue;
    budget_.spend(1);
    for (const Schema& other : branches[i].list) {
      if (are_apart(written, other)) continue;
      throw schema_error(
          pointer, fmt::format("oneOf is supported only where no value can match two branches, but "
                               "one may match {} and {}: use anyOf, or a member that tells them "
                               "apart",
                               chosen, i));
    }
  }
}

// Whether no value that is written for `written` is valid for `other`.
bool SchemaMerger::are_apart(const Schema& written, const Schema& other) {
  budget_.spend(64 + 16 * (written.size() + other.size()));
  // A schema without `type` is valid for all types that its keywords do not speak of.
  const Types common =
      types_of(written, "") & (other.contains("type") ? types_of(other, "") : all_types);
  if (common == 0) return true;
  if (written.contains("enum") && (other.contains("type") || other.contains("enum"))) {
    const std::size_t listed = other.contains("enum") ? other["enum"].size() : 1;
    budget_.spend(reading_steps(written["enum"]) * (1 + listed / 8) + written["enum"].size() * 16);
    return std::ranges::all_of(written["enum"], [&](const Schema& value) {
      const bool is_listed = !other.contains("enum") || has_element(other["enum"], value);
      return !is_listed || !is_plainly_valid(value, other);
    });
  }
  if (!other.contains("type") || common != type_object) return false;
  return values_are_apart(written, other);
}

// Whether objects of `written` never have a member that `other` demands.
bool SchemaMerger::lacks_required(const Schema& written, const Schema& other) {
  const auto required = other.find("required");
  if (required == other.end()) return false;
  if (adds_members(written)) return false;
  return std::ranges::any_of(*required, [&](const Schema& name) {
    if (!name.is_string()) return false;
    budget_.spend(size_of(written, "properties") + size_of(written, "required"));
    const auto& text = name.get_ref<const std::string&>();
    return property_of(written, text) == nullptr && !requires_member(written, text);
  });
}

bool SchemaMerger::values_are_apart(const Schema& written, const Schema& other) {
  if (lacks_required(written, other)) return true;
  const auto required = written.find("required");
  if (required == written.end()) return false;
  const bool is_closed =
      other.contains("additionalProperties") && other["additionalProperties"] == false;
  return std::ranges::any_of(*required, [&](const Schema& name) {
    if (!name.is_string()) return false;
    budget_.spend(size_of(written, "properties") + size_of(other, "properties"));
    const auto& text = name.get_ref<const std::string&>();
    const Schema* theirs = property_of(other, text);
    if (theirs == nullptr) return is_closed;
    const Schema* own = property_of(written, text);
    return own != nullptr && members_are_apart(*own, *theirs, text);
  });
}

// Whether no value of a member can be valid for both of its schemas; false where they lie too deep
// to tell.
bool SchemaMerger::members_are_apart(const Schema& own, const Schema& theirs,
                                     const std::string& name) {
  constexpr unsigned depth_max = 4;
  if (compared_ == depth_max) return false;
  const Counted depth(compared_);
  const Ways own_ways = ways(own, pointer_to("", name));
  const Ways their_ways = ways(theirs, pointer_to("", name));
  return std::ranges::all_of(own_ways.list, [&](const Schema& a) {
    return std::ranges::all_of(their_ways.list, [&](const Schema& b) { return are_apart(a, b); });
  });
}

}  // namespace sluice::constrain
