// FNV-1a of 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): notices that a file or a setting is no
// longer what it was, and turns a name into a seed. No protection against intent.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::batch {

class Digest {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

inline std::uint64_t digest_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.value();
}

}  // namespace sluice::batch
