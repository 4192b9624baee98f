// JSON Schemas: SCHEMA, CHOICES. What a grammar writes is JSON that the schema accepts.
#include "core/constrain/json_schema.h"

#include <set>
#include <string>
#include <vector>

#include "core/constrain/library.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/grammars.h"
#include "tests/schema_validator.h"

namespace sluice::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t steps_max = 1'000'000;
constexpr std::size_t bytes_max = std::size_t{16} << 20;

// A schema that the validator knows all about: what stands for the name of a keyword anywhere is
// one of its own. (Names of members are too, so some schemas are left out that it would know.)
bool is_known(const Json& schema, bool is_names = false) {
  static const std::set<std::string> known = {"type",
                                              "properties",
                                              "required",
                                              "items",
                                              "minItems",
                                              "maxItems",
                                              "minLength",
                                              "maxLength",
                                              "minimum",
                                              "maximum",
                                              "anyOf",
                                              "allOf",
                                              "enum",
                                              "const",
                                              "exclusiveMinimum",
                                              "exclusiveMaximum",
                                              "additionalProperties",
                                              "prefixItems"};
  if (schema.is_array()) {
    return std::all_of(schema.begin(), schema.end(), [](const Json& one) { return is_known(one); });
  }
  if (!schema.is_object()) return true;
  for (const auto& [name, value] : schema.items()) {
    if (!is_names && !known.contains(name)) return false;
    if (name == "enum" || name == "const") continue;
    if (!is_known(value, name == "properties")) return false;
  }
  return true;
}

void check_text(const Json& schema, const std::string& text) {
  const Json value = Json::parse(text, nullptr, false);
  require(!value.is_discarded(), "what is written is JSON");
  if (!is_known(schema)) return;
  try {
    require(test::is_valid(schema, value, schema), "what is written is valid");
  } catch (const Json::exception&) {  // a keyword has another type than the validator knows
  }
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 2);
  constrain::CompileBudget budget(steps_max, bytes_max);
  try {
    const Json schema = constrain::parse_schema(parts[0]);
    const auto text = check_grammar(constrain::compile_json_schema(schema, budget), parts[1]);
    if (text) check_text(schema, *text);
  } catch (const constrain::GrammarError&) {
  }
  require(budget.bytes_peak() <= bytes_max, "memory is bounded");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": )"
      R"(250}, "b": {"enum": [1, "x", null]}}, "required": ["a"], "additionalProperties": false})",
      R"({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 3}, )"
      R"("minItems": 1, "maxItems": 4, "prefixItems": [true]})",
      R"({"anyOf": [{"type": "number", "exclusiveMinimum": 0.5}, {"const": [1, {"a": 2}]}]})",
      R"({"type": "string", "pattern": "^(a|b{2,3})[^x-z]*\\d?$"})",
      R"({"$defs": {"n": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": )"
      R"("#/$defs/n"}, {"type": "null"}]}}, "required": ["next"]}}, "$ref": "#/$defs/n"})",
      R"({"allOf": [{"type": "object", "properties": {"a": true}}, {"required": ["a"]}]})",
      R"({"oneOf": [{"type": "string"}, {"type": ["null", "boolean"]}]})",
      R"({"type": "string", "format": "date-time"})",
      R"({"not": {}, "if": true, "then": false, "unevaluatedProperties": false})",
      R"({"additionalProperties": {"type": "integer"}, "patternProperties": {}})"};
  for (std::string& seed : all) seed = joined({seed, "\x03\x40\x01\x05 some choices 0123"});
  return all;
}

}  // namespace sluice::fuzz
