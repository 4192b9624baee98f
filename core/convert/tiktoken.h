// tiktoken.model, the vocabulary of Kimi's checkpoints: a line of each token, its bytes in Base64
// and its rank. There are no merges: two tokens become the one that they make together, the lowest
// rank first.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/convert/config.h"

namespace sluice::convert {

// How the code of Kimi's tokenizer splits a text before.
inline constexpr std::string_view kimi_regex =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What tokenizer.json would be, without the special tokens. `settings` is tokenizer_config.json.
// Throws ModelError.
nlohmann::json read_tiktoken(const std::filesystem::path& file, const Config& settings);

}  // namespace sluice::convert
