#include "core/rows/row_json.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::rows {

RowJson parse_row_object(std::string_view line, std::string_view what) {
  RowJson object;
  try {
    object = parse_limited_json(line, {what, row_values_max, row_members_max, row_depth_max}).value;
  } catch (const JsonError& error) {
    throw BadRow(error.what());
  }
  if (!object.is_object()) {
    throw BadRow(fmt::format("a {} must be an object, not {}", what, object.type_name()));
  }
  return object;
}

const RowJson* find_member(const RowJson& object, std::string_view name) {
  for (const auto& item : object.items()) {
    if (item.key() == name) return item.value().is_null() ? nullptr : &item.value();
  }
  return nullptr;
}

void check_members(const RowJson& object, std::initializer_list<std::string_view> known) {
  for (const auto& item : object.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    throw BadRow(fmt::format("\"{}\" is unknown", text::escaped(item.key(), 100)));
  }
}

std::string json_text(const RowJson& value) {
  return value.dump(-1, ' ', false, RowJson::error_handler_t::replace);
}

void throw_wrong_type(std::string_view name, std::string_view expected, const RowJson& found) {
  throw BadRow(fmt::format("\"{}\" must be {}, not {}", name, expected, found.type_name()));
}

std::string text_of(const RowJson& value, std::string_view name) {
  if (!value.is_string()) throw_wrong_type(name, "a string", value);
  return value.get<std::string>();
}

bool truth_of(const RowJson& value, std::string_view name) {
  if (!value.is_boolean()) throw_wrong_type(name, "true or false", value);
  return value.get<bool>();
}

std::uint64_t count_of(const RowJson& value, std::string_view name, std::uint64_t most,
                       std::uint64_t least) {
  constexpr double exact_most = 0x1p53;  // up to here 2.0 is as much an integer as 2
  const bool is_exact = value.is_number_float() && std::abs(value.get<double>()) <= exact_most &&
                        value.get<double>() == std::trunc(value.get<double>());
  if (!is_exact && !value.is_number_integer()) throw_wrong_type(name, "an integer", value);
  if (value >= 0) {
    const auto count = value.get<std::uint64_t>();
    if (count >= least && count <= most) return count;
  }
  throw BadRow(
      fmt::format("\"{}\" is {}, but must be from {} to {}", name, value.dump(), least, most));
}

double number_of(const RowJson& value, std::string_view name, double least, double most) {
  if (!value.is_number()) throw_wrong_type(name, "a number", value);
  const auto number = value.get<double>();
  if (number >= least && number <= most) return number;
  throw BadRow(
      fmt::format("\"{}\" is {}, but must be from {} to {}", name, value.dump(), least, most));
}

}  // namespace sluice::rows
