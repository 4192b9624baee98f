// Multiplies out allOf, anyOf, oneOf and $ref: a schema becomes a list of plain schemas, which have
// none of these keywords. A value is valid if one of them accepts it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/constrain/json_schema.h"

namespace sluice::constrain {

using Schema = nlohmann::ordered_json;

// The types of JSON values, as bits.
using Types = unsigned;
inline constexpr Types type_null = 1, type_boolean = 2, type_object = 4, type_array = 8,
                       type_string = 16, type_integer = 32, type_fraction = 64;
inline constexpr Types type_number = type_integer | type_fraction, all_types = 127;

// The error for a keyword: "schema, /properties/a/not: WHAT".
GrammarError schema_error(std::string_view pointer, std::string_view what);

// The types that a plain schema means: those of `type`, else those that its keywords speak of.
Types types_of(const Schema& plain, std::string_view pointer);
Types type_of_value(const Schema& value);

// Whether an array has an element that is equal to `value`.
bool has_element(const Schema& array, const Schema& value);

std::string pointer_to(std::string_view pointer, std::string_view name);

class SchemaMerger {
 public:
  // `root` must outlive the merger.
  SchemaMerger(const Schema& root, const SchemaLimits& limits) : root_(root), limits_(limits) {}

  // The ways in which a value can be valid; none when it cannot. Throws GrammarError for keywords
  // that are not supported.
  std::vector<Schema> ways(const Schema& schema, const std::string& pointer);

  // What a local reference stands for.
  const Schema& target(const Schema& reference, const std::string& pointer) const;

  // Throws unless no value that is written for one of the branches of a oneOf is valid for another.
  void check_disjoint(const std::vector<std::vector<Schema>>& branches, const std::string& pointer);

 private:
  void expand(const Schema& schema, const std::string& pointer, unsigned depth,
              std::vector<Schema>& ways);
  void expand_closed(const Schema& schema, const std::string& pointer, unsigned depth,
                     std::vector<Schema>& ways);
  void expand_branches(const Schema& list, const std::string& pointer, unsigned depth,
                       bool exclusive, std::vector<Schema>& ways);
  void multiply(std::vector<Schema>& ways, const std::vector<Schema>& more,
                const std::string& pointer);
  bool are_apart(const Schema& written, const Schema& other, unsigned depth);
  bool values_are_apart(const Schema& written, const Schema& other, unsigned depth);
  void spend(const Schema& schema);

  const Schema& root_;
  const SchemaLimits& limits_;
  std::size_t spent_bytes_ = 0;
};

// Whether a value is allowed by what `plain` says of its type, its range and its length.
// Other keywords are not looked at.
bool is_plainly_valid(const Schema& value, const Schema& plain);

}  // namespace sluice::constrain
