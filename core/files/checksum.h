// XXH3 of 64 bits (xxhash.com): notices that bytes are no longer what they were, and turns a name
// into a seed. It costs less than reading the bytes, and protects against no intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

struct XXH3_state_s;

namespace sluice::files {

// The sum of bytes that come in pieces. Throws std::bad_alloc.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  void add(std::string_view bytes) { add(std::as_bytes(std::span(bytes))); }
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::uint64_t checksum_of(std::string_view bytes);

}  // namespace sluice::files
