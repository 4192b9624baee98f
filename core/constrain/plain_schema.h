// Plain schemas, which have none of allOf, anyOf, oneOf and $ref: what they mean, and how two of
// them become one.
#pragma once

#include <compare>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/constrain/budget.h"
#include "core/constrain/grammar_error.h"

namespace sluice::constrain {

using Schema = nlohmann::ordered_json;

// The types of JSON values, as bits.
using Types = unsigned;
inline constexpr Types type_null = 1, type_boolean = 2, type_object = 4, type_array = 8,
                       type_string = 16, type_integer = 32, type_fraction = 64;
inline constexpr Types type_number = type_integer | type_fraction, all_types = 127;

// A member of plain schemas for SchemaMerger alone: which branches of which oneOf one came of, as
// pairs of numbers.
inline constexpr const char* chosen_branches = "oneOf";

// A member of plain schemas that lists the formats beside the one in `format`. No text has to have
// them, as they are not known.
inline constexpr const char* other_formats = "anyOf";

// The error for a keyword: "schema, /properties/a/not: WHAT".
GrammarError schema_error(std::string_view pointer, std::string_view what);

// A pointer of bounded length: what is deeper is left out.
inline constexpr std::size_t pointer_bytes_max = 1000;
std::string pointer_to(std::string_view pointer, std::string_view name);

// The types that a plain schema means: those of `type`, else those that its keywords speak of.
Types types_of(const Schema& plain, std::string_view pointer);
Types type_of_value(const Schema& value);

// Numbers by their values, however they are held: exactly, where a double would round an integer.
std::strong_ordering compare_numbers(const Schema& a, const Schema& b);

// Whether two values are one for JSON Schema: 1 and 1.0 are, and objects whatever the order of
// their members.
bool is_same(const Schema& a, const Schema& b);

// Whether an array has an element that is the same as `value`.
bool has_element(const Schema& array, const Schema& value);

// Whether a schema says plainly that no value is valid: false, {"not": {}} or {"not": true}.
bool forbids_all(const Schema& schema);

// Whether objects of a plain schema are written with members that it does not name.
bool adds_members(const Schema& plain);

// Whether a value is allowed by what `plain` says of its type, its range and its length.
// Other keywords are not looked at.
bool is_plainly_valid(const Schema& value, const Schema& plain);

// What reading a schema costs, to compare it or to write it; and what copying it costs, which takes
// memory for each value within it and gives it back later.
std::uint64_t reading_steps(const Schema& schema);
std::uint64_t copying_steps(const Schema& schema);

class PlainMerger {
 public:
  // Both must outlive the merger. `pointer` is the place, for errors.
  PlainMerger(WorkBudget& budget, const std::string& pointer)
      : budget_(budget), pointer_(pointer) {}

  // Makes `a` the plain schema of values that are valid for both. Throws GrammarError.
  void merge(Schema& a, const Schema& b);

 private:
  bool is_among(const Schema& list, const Schema& value);
  template <class Object>
  Object* find(Object& object, const std::string& name);
  void join(Schema& a, const Schema& b);
  void merge_members(Schema& a, const Schema& b);
  void merge_items(Schema& a, const Schema& b);
  void merge_format(Schema& a, const Schema& other);
  void merge_keyword(const std::string& name, Schema& own, const Schema& other);
  [[noreturn]] void refuse_two(const std::string& name) const;
  Schema common_values(const Schema& a, const Schema& b);
  Schema common_types(const Schema& a, const Schema& b);

  WorkBudget& budget_;
  const std::string& pointer_;
};

}  // namespace sluice::constrain
