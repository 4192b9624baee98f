// JSON from strangers: limited in size and depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/convert/config.h"

namespace sluice::convert {

// No configuration of a model is longer; a tokenizer has a limit of its own.
inline constexpr std::uint64_t config_bytes_max = 16'000'000;

// Of a vocabulary in lines of text: the file, and a token in it, which is what tokenizers take.
inline constexpr std::uint64_t vocabulary_bytes_max = 64'000'000;
inline constexpr std::size_t token_bytes_max = 1024;

// Parses `text`. Throws ModelError that begins with `source` when it is not JSON, is too deep, or
// has a name twice in one object.
nlohmann::json parse_json(std::string_view text, const std::string& source);

// The same for a file of up to `bytes_max`. Throws std::system_error when it cannot be read.
nlohmann::json read_json(const std::filesystem::path& path, std::uint64_t bytes_max);

// A configuration; an empty one where there is no such file.
Config read_config(const std::filesystem::path& path);

std::string read_file(const std::filesystem::path& path, std::uint64_t bytes_max);

}  // namespace sluice::convert
