// JSON from strangers: limited in size and depth.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice::convert {

// No configuration of a model is longer; a tokenizer has a limit of its own.
inline constexpr std::uint64_t config_bytes_max = 16'000'000;

// Parses `text`. Throws ModelError that begins with `source` when it is not JSON, is too deep, or
// has a name twice in one object.
nlohmann::json parse_json(std::string_view text, const std::string& source);

// The same for a file of up to `bytes_max`. Throws std::system_error when it cannot be read.
nlohmann::json read_json(const std::filesystem::path& path, std::uint64_t bytes_max);

std::string read_file(const std::filesystem::path& path, std::uint64_t bytes_max);

}  // namespace sluice::convert
