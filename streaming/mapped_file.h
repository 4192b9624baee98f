// A whole file mapped for reading. Pages are loaded when they are touched and belong to the page
// cache, so the mapping itself takes no memory, however long the file is.
//
// Immutable after construction; any number of threads may read. A file that is truncated while it
// is mapped raises SIGBUS on access, as with any mapping.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sluice::streaming {

class MappedFile {
 public:
  // Both throw std::system_error, with the path in its message, when the file cannot be opened or
  // mapped, or is not a regular file. For an empty file bytes() is empty.
  explicit MappedFile(std::filesystem::path path);
  // Maps the file that is open as `descriptor`, whatever has its name by now. The mapping needs
  // neither afterwards.
  MappedFile(std::filesystem::path path, int descriptor);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  // The file's bytes, page aligned. Valid for the lifetime of this object, also after it has been
  // moved from (the new owner keeps the same address).
  std::span<const std::byte> bytes() const { return bytes_; }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace sluice::streaming
