// A JSON object of a checkpoint, with lookups that say what is wrong and where. A null counts as
// absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"

namespace sluice::convert {

class Config {
 public:
  // Throws ModelError where `values` is no object.
  Config(nlohmann::json values, std::string source);

  bool contains(const char* key) const { return find(key) != nullptr; }
  const nlohmann::json* find(const char* key) const;

  std::optional<std::uint32_t> find_count(const char* key) const;  // 1 to 2^31 - 1
  std::uint32_t count(const char* key) const;
  std::optional<std::uint32_t> find_whole(const char* key) const;  // 0 to 2^31 - 1
  std::optional<float> find_number(const char* key) const;
  float number(const char* key) const;
  std::optional<bool> find_flag(const char* key) const;
  std::optional<std::string> find_text(const char* key) const;
  std::optional<Config> find_object(const char* key) const;
  const nlohmann::json* find_list(const char* key) const;

  ModelError error(const char* key, const std::string& what) const;

 private:
  std::optional<std::uint32_t> find_whole_from(std::uint32_t least, const char* key) const;

  nlohmann::json values_;
  std::string source_;
};

}  // namespace sluice::convert
