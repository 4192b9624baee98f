// Reading a place of an open file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::files {

// Fills `out` with the bytes from `offset` on, and returns how many there were: fewer than asked
// for where the file ends. Goes on after signals. Throws std::system_error, which names no file.
std::size_t read_at(int descriptor, std::span<std::byte> out, std::uint64_t offset);

}  // namespace sluice::files
