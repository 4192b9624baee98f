// JSON Schema as a grammar: every text that matches the grammar is JSON that the schema accepts.
//
// The reverse does not hold: a schema accepts more spellings than are written. Members stand in the
// order of `properties`; members that the schema does not name are written only where
// `additionalProperties` asks for them; numbers and white space are limited as in JsonText. A
// schema that has no `type` means the types that its keywords speak of. docs/structured-output.md
// has the table of keywords. A keyword that cannot be obeyed is refused by name, with its JSON
// pointer; names that no draft of JSON Schema gives a meaning are passed over, as the drafts
// demand.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/constrain/budget.h"
#include "core/constrain/grammar.h"
#include "core/constrain/grammar_error.h"
#include "core/constrain/json_text.h"

namespace sluice::constrain {

inline constexpr std::size_t schema_bytes_max = std::size_t{1} << 20;  // of a schema as text
inline constexpr std::size_t schema_nesting_max = 128;  // of values within each other
inline constexpr std::size_t schema_parts_max = 20000;  // schemas within it, as they are used

// The schema that a text holds. Throws GrammarError, as all of these do.
nlohmann::ordered_json parse_schema(std::string_view text);

Grammar compile_json_schema(const nlohmann::ordered_json& schema, CompileBudget& budget);
Grammar compile_json_schema(const nlohmann::ordered_json& schema);

// The values that `part` of the schema `root` allows, as an expression of the builder of `json`.
Expression schema_values(JsonText& json, const nlohmann::ordered_json& part,
                         const nlohmann::ordered_json& root);

// Any JSON object.
Grammar compile_json_object(CompileBudget& budget);

}  // namespace sluice::constrain
