// A hash for tables of texts that strangers have written. Its key is another one in each process,
// so texts that fall together cannot be prepared: a look-up costs what it costs with texts of
// chance.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <xxhash.h>

namespace sluice::text {

inline const std::uint64_t hash_key = [] {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}();

struct KeyedHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return XXH3_64bits_withSeed(text.data(), text.size(), hash_key);
  }
};

}  // namespace sluice::text
