// Tells a file from every other one, and, where that matters, from itself once it has been written
// to.
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

// Whether both are facts of one file, written to in between or not.
inline bool is_same_file(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Whether the open file still has this name: false once another has taken it.
inline bool has_name(int descriptor, const char* path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path, &named) == 0 &&
         is_same_file(opened, named);
}

}  // namespace sluice::base
