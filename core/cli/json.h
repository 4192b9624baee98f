// What all commands do alike that print JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace sluice::cli {

// What is not known is null, not absent.
template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace sluice::cli
