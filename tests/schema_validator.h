// A validator of JSON Schema by the words of the specification, for the keywords that the tests of
// grammars write. It passes other keywords over.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <string_view>

#include "core/constrain/characters.h"

namespace sluice::test {

using SchemaJson = nlohmann::ordered_json;

inline std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

inline bool has_type(const std::string& type, const SchemaJson& value) {
  if (type == "integer") {
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  }
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "array" ? value.is_array() : value.is_object();
}

inline bool is_valid(const SchemaJson& schema, const SchemaJson& value, const SchemaJson& root);

inline bool is_valid_object(const SchemaJson& schema, const SchemaJson& value,
                            const SchemaJson& root) {
  if (value.size() < schema.value("minProperties", std::size_t{0})) return false;
  for (const SchemaJson& name : schema.value("required", SchemaJson::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  const SchemaJson properties = schema.value("properties", SchemaJson::object());
  for (const auto& item : value.items()) {
    if (properties.contains(item.key())) {
      if (!is_valid(properties[item.key()], item.value(), root)) return false;
    } else if (schema.contains("additionalProperties")) {
      if (!is_valid(schema["additionalProperties"], item.value(), root)) return false;
    }
  }
  return true;
}

inline bool is_valid_array(const SchemaJson& schema, const SchemaJson& value,
                           const SchemaJson& root) {
  if (value.size() < schema.value("minItems", std::size_t{0})) return false;
  if (value.size() > schema.value("maxItems", std::size_t{1000000})) return false;
  const SchemaJson first = schema.value("prefixItems", SchemaJson::array());
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (i < first.size()) {
      if (!is_valid(first[i], value[i], root)) return false;
    } else if (schema.contains("items") && !is_valid(schema["items"], value[i], root)) {
      return false;
    }
  }
  return true;
}

inline bool is_valid_number(const SchemaJson& schema, const SchemaJson& value) {
  const double number = value.get<double>();
  return number >= schema.value("minimum", -1e300) && number <= schema.value("maximum", 1e300) &&
         number > schema.value("exclusiveMinimum", -1e300) &&
         number < schema.value("exclusiveMaximum", 1e300);
}

// One element for each character, so that a class matches whole characters.
inline std::wstring wide(std::string_view text) {
  std::wstring found;
  while (const auto c = constrain::take_character(text)) found += static_cast<wchar_t>(*c);
  return found;
}

inline bool is_valid_string(const SchemaJson& schema, const SchemaJson& value) {
  const std::string& text = value.get_ref<const std::string&>();
  if (characters(text) < schema.value("minLength", std::size_t{0})) return false;
  if (characters(text) > schema.value("maxLength", std::size_t{1000000})) return false;
  if (!schema.contains("pattern")) return true;
  return std::regex_search(wide(text), std::wregex(wide(schema["pattern"].get<std::string>())));
}

inline bool is_valid(const SchemaJson& schema, const SchemaJson& value, const SchemaJson& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const std::string name = schema["$ref"].get<std::string>().substr(1);
    if (!is_valid(root.at(SchemaJson::json_pointer(name)), value, root)) return false;
  }
  if (schema.contains("type")) {
    const SchemaJson& type = schema["type"];
    const bool fits =
        type.is_string() ? has_type(type, value)
                         : std::any_of(type.begin(), type.end(),
                                       [&](const SchemaJson& one) { return has_type(one, value); });
    if (!fits) return false;
  }
  if (schema.contains("const") && schema["const"] != value) return false;
  if (schema.contains("enum")) {
    const SchemaJson& list = schema["enum"];
    if (std::find(list.begin(), list.end(), value) == list.end()) return false;
  }
  const auto accepts = [&](const SchemaJson& other) { return is_valid(other, value, root); };
  for (const char* name : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(name)) continue;
    const auto count =
        static_cast<std::size_t>(std::count_if(schema[name].begin(), schema[name].end(), accepts));
    if (std::string(name) == "anyOf" && count == 0) return false;
    if (std::string(name) == "oneOf" && count != 1) return false;
    if (std::string(name) == "allOf" && count != schema[name].size()) return false;
  }
  if (value.is_object()) return is_valid_object(schema, value, root);
  if (value.is_array()) return is_valid_array(schema, value, root);
  if (value.is_number()) return is_valid_number(schema, value);
  return !value.is_string() || is_valid_string(schema, value);
}

}  // namespace sluice::test
