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

#include "core/constrain/grammar.h"
#include "core/constrain/grammar_error.h"

namespace sluice::constrain {

struct SchemaLimits {
  std::size_t bytes_max = std::size_t{1} << 20;  // of the schema as text
  std::size_t nesting_max = 128;                 // of values within each other
  unsigned depth_max = 64;                       // of allOf, anyOf, $ref within each other
  std::size_t ways_max = 256;                    // that anyOf and oneOf leave, once multiplied out
  std::size_t parts_max = 20000;                 // schemas within the schema, as they are used
  std::size_t work_bytes_max = std::size_t{16} << 20;  // of schemas that are put together
};

// Throws GrammarError.
Grammar compile_json_schema(const nlohmann::ordered_json& schema, const SchemaLimits& limits = {});

// Any JSON object.
Grammar compile_json_object();

}  // namespace sluice::constrain
