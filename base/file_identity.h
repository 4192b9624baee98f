// Tells a file from every other one, and from itself once it has been written to.
#pragma once

#include <cstdint>
#include <sys/stat.h>

namespace sluice::base {

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_s = 0;
  std::int64_t modified_ns = 0;  // of that second

  static FileIdentity of(const struct stat& facts) {
    return {static_cast<std::uint64_t>(facts.st_dev), static_cast<std::uint64_t>(facts.st_ino),
            static_cast<std::uint64_t>(facts.st_size), facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
  }
  bool operator==(const FileIdentity&) const = default;
};

}  // namespace sluice::base
