// A whole file mapped for reading. Pages are loaded when they are touched and belong to the page
// cache, so the mapping itself takes no memory, however long the file is.
//
// Immutable after construction; any number of threads may read. A file that is truncated while it
// is mapped raises SIGBUS on access, as with any mapping.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <filesystem>
#include <span>

namespace sluice::streaming {

class MappedFile {
 public:
  // Throws std::system_error, with the path in its message, when the file cannot be opened or
  // mapped, or is not a regular file. For an empty file bytes() is empty.
  explicit MappedFile(std::filesystem::path path);

  // The file's bytes, page aligned. Valid for the lifetime of this object, also after it has been
  // moved from (the new owner keeps the same address).
  std::span<const std::byte> bytes() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  boost::interprocess::mapped_region region_;
};

}  // namespace sluice::streaming
