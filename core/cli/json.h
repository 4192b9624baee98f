// Shared by all commands that print JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace sluice::cli {

// An unknown value becomes null; its member is not left out.
template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace sluice::cli
