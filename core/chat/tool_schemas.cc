#include "core/chat/tool_schemas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/number.h"
#include "core/chat/bounded_json.h"
#include "core/chat/marker_scanner.h"
#include "core/text/limited_json.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int depth_max = 32;
constexpr std::array<const char*, 3> combinations = {"allOf", "anyOf", "oneOf"};

// A tool as APIs have it, or its function alone.
const Json& definition_of(const Json& tool) {
  const Json* function = json_member(tool, "function");
  return function != nullptr ? *function : tool;
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  }
  return true;  // a type that is not known says nothing
}

bool has_type(const Json& value, const Json& type) {
  if (type.is_string()) return is_of_type(value, type.get_ref<const std::string&>());
  if (!type.is_array()) return true;
  return std::ranges::any_of(type, [&](const Json& one) {
    return !one.is_string() || is_of_type(value, one.get_ref<const std::string&>());
  });
}

const Json* element(const Json& array, std::string_view index) {
  const auto at = base::whole_number<std::size_t>(index);
  return at && *at < array.size() ? &array[*at] : nullptr;
}

// Python's words for what JSON writes in lower case.
std::optional<Json> python_word(std::string_view text) {
  if (text == "True") return Json(true);
  if (text == "False") return Json(false);
  if (text == "None") return Json(nullptr);
  return std::nullopt;
}

}  // namespace

const Json* ToolSchemas::find(std::string_view function) const {
  if (!tools_.is_array()) return nullptr;
  for (const Json& tool : tools_) {
    const Json& definition = definition_of(tool);
    const Json* name = json_member(definition, "name");
    const bool is_it =
        name != nullptr && name->is_string() && name->get_ref<const std::string&>() == function;
    if (is_it) return &definition;
  }
  return nullptr;
}

bool ToolSchemas::may_visit(int depth) {
  if (depth > depth_max || visits_left_ == 0) return false;
  --visits_left_;
  return true;
}

const Json* ToolSchemas::resolve(const Json& schema) const {
  const Json* reference = json_member(schema, "$ref");
  if (reference == nullptr || !reference->is_string()) return nullptr;
  std::string_view path = reference->get_ref<const std::string&>();
  if (!path.starts_with('#')) return nullptr;
  path.remove_prefix(1);
  const Json* at = root_;
  while (at != nullptr && path.starts_with('/')) {
    path.remove_prefix(1);
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(name.size());
    at = at->is_array() ? element(*at, name) : json_member(*at, name_of_step(name));
  }
  return path.empty() ? at : nullptr;
}

// Finds what the schema of an object says about one of its members.
void ToolSchemas::collect(const Json& schema, std::string_view parameter, int depth,
                          std::vector<const Json*>& found) {
  if (!may_visit(depth)) return;
  const Json* properties = json_member(schema, "properties");
  const Json* property = properties != nullptr ? json_member(*properties, parameter) : nullptr;
  const Json* others = json_member(schema, "additionalProperties");
  if (property != nullptr) {
    found.push_back(property);
  } else if (others != nullptr && others->is_object()) {
    found.push_back(others);
  }
  if (const Json* target = resolve(schema)) collect(*target, parameter, depth + 1, found);
  for (const char* name : combinations) {
    const Json* parts = json_member(schema, name);
    if (parts == nullptr || !parts->is_array()) continue;
    for (const Json& part : *parts) collect(part, parameter, depth + 1, found);
  }
}

// Whether a schema lets a value through, as far as its type and what it may be go.
bool ToolSchemas::allows(const Json& schema, const Json& value, int depth) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object() || !may_visit(depth)) return true;
  const Json* nullable = json_member(schema, "nullable");
  if (value.is_null() && nullable != nullptr && *nullable == true) return true;
  if (const Json* type = json_member(schema, "type"); type != nullptr && !has_type(value, *type)) {
    return false;
  }
  if (const Json* only = json_member(schema, "const"); only != nullptr && *only != value)
    return false;
  if (const Json* choices = json_member(schema, "enum");
      choices != nullptr && choices->is_array()) {
    visits_left_ -= std::min(visits_left_, choices->size());
    if (std::ranges::find(*choices, value) == choices->end()) return false;
  }
  const Json* target = resolve(schema);
  if (target != nullptr && !allows(*target, value, depth + 1)) return false;
  for (const std::string_view name : combinations) {
    const Json* parts = json_member(schema, name);
    if (parts == nullptr || !parts->is_array() || parts->empty()) continue;
    const auto lets_through = [&](const Json& part) { return allows(part, value, depth + 1); };
    const bool is_let_through = name == "allOf" ? std::ranges::all_of(*parts, lets_through)
                                                : std::ranges::any_of(*parts, lets_through);
    if (!is_let_through) return false;
  }
  return true;
}

Json ToolSchemas::value_of(std::string_view function, std::string_view parameter,
                           std::string_view text) {
  std::vector<const Json*> schemas;
  const Json* tool = find(function);
  root_ = tool != nullptr ? json_member(*tool, "parameters") : nullptr;
  if (root_ != nullptr) collect(*root_, parameter, 0, schemas);
  const auto may_be = [&](const Json& value) {
    return std::ranges::any_of(schemas,
                               [&](const Json* schema) { return allows(*schema, value, 0); });
  };
  static const std::vector<Json> one_of_each = {Json::object(), Json::array(), "", 0, 0.5,
                                                true,           nullptr};
  const bool says_type = !schemas.empty() && !std::ranges::all_of(one_of_each, may_be);
  Json as_text = text;
  if (says_type && may_be(as_text)) return as_text;
  std::optional<Json> value = parse_bounded(text);
  if (!says_type) return value && !value->is_string() ? *std::move(value) : as_text;
  if (!value) value = python_word(trimmed(text));
  return value && may_be(*value) ? *std::move(value) : as_text;
}

}  // namespace sluice::chat
