// Little-endian values at any alignment, as GGUF stores them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace sluice::gguf {

static_assert(std::endian::native == std::endian::little,
              "GGUF weights are little-endian and are computed with in place");

// The value of type T that starts at `bytes`; sizeof(T) bytes must be there.
template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace sluice::gguf
