#include "core/convert/config.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace sluice::convert {

using nlohmann::json;

Config::Config(json values, std::string source)
    : values_(std::move(values)), source_(std::move(source)) {
  if (!values_.is_object()) throw ModelError(fmt::format("{}: not a JSON object", source_));
}

const json* Config::find(const char* key) const {
  const auto found = values_.find(key);
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::uint32_t> Config::find_count(const char* key) const {
  return find_whole_from(1, key);
}

std::optional<std::uint32_t> Config::find_whole(const char* key) const {
  return find_whole_from(0, key);
}

std::optional<std::uint32_t> Config::find_whole_from(std::uint32_t least, const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
  const std::uint64_t whole = value->is_number_unsigned() ? value->get<std::uint64_t>() : most + 1;
  if (whole < least || whole > most) {
    throw error(key, fmt::format("is not a number from {} to {}", least, most));
  }
  return static_cast<std::uint32_t>(whole);
}

std::uint32_t Config::count(const char* key) const {
  const auto value = find_count(key);
  if (!value) throw error(key, "is missing");
  return *value;
}

std::optional<float> Config::find_number(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const float number = value->is_number() ? value->get<float>() : NAN;
  if (!std::isfinite(number)) throw error(key, "is not a number");
  return number;
}

float Config::number(const char* key) const {
  const auto value = find_number(key);
  if (!value) throw error(key, "is missing");
  return *value;
}

std::optional<bool> Config::find_flag(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw error(key, "is neither true nor false");
  return value->get<bool>();
}

std::optional<std::string> Config::find_text(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw error(key, "is not a string");
  return value->get<std::string>();
}

std::optional<Config> Config::find_object(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return Config(*value, fmt::format("{}: {}", source_, key));
}

const json* Config::find_list(const char* key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_array()) throw error(key, "is not a list");
  return value;
}

ModelError Config::error(const char* key, const std::string& what) const {
  return ModelError(fmt::format("{}: '{}' {}", source_, key, what));
}

}  // namespace sluice::convert
