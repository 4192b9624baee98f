// Sizes of all GGUF tensor types, also of those that sluice cannot compute with: `inspect` and the
// checks of a file need the bytes of every tensor.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::gguf {

struct TypeLayout {
  std::uint32_t elements_per_block = 0;
  std::uint32_t bytes_per_block = 0;
};

// The layout of a GGUF tensor type id; nothing when the id is unknown, removed, or of a type whose
// size is not known here.
std::optional<TypeLayout> find_type_layout(std::uint32_t type);

// Ids of formats that early GGUF files used and that have since been removed.
bool is_removed_type(std::uint32_t type);

// The bytes of a tensor of `rows` rows of `columns` weights (columns a multiple of
// elements_per_block); nothing on overflow of 64 bits.
std::optional<std::uint64_t> tensor_bytes(const TypeLayout& layout, std::uint64_t columns,
                                          std::uint64_t rows);

// a * b; nothing on overflow of 64 bits.
std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b);

}  // namespace sluice::gguf
