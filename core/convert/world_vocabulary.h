// rwkv_vocab_*.txt, the "world" vocabulary of RWKV's checkpoints: a line of each token, the first
// of index 1, with its index, its bytes as Python's repr() writes them, and how many they are.
//
//   11 '\n' 1
//   40 "'" 1
//   129 b'\x80' 1
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::convert {

// That of a checkpoint, if it has one. Throws ModelError where it has several.
std::optional<std::filesystem::path> find_world_vocabulary(const std::filesystem::path& folder);

// The bytes of each token, in the order of indices; none where a line leaves its index unused.
// `ids`: rows of the embedding table, the first of which is no token here. Throws ModelError that
// names the line.
std::vector<std::string> read_world_vocabulary(const std::filesystem::path& file,
                                               std::uint64_t ids);

// Bytes as tokenizer.ggml.tokens has them: ASCII with escapes.
std::string with_escapes(std::string_view bytes);

}  // namespace sluice::convert
