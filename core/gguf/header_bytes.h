// A copy of the beginning of a file in memory: as much as a parser asks for, at addresses that do
// not change.
//
// A header is checked once and used for as long as the model is. A mapping would follow changes of
// the file: if the file were overwritten or truncated, lengths would change after they were
// checked, or the process would end with SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>

#include "base/descriptor.h"
#include "base/file_identity.h"

namespace sluice::gguf {

class HeaderBytes {
 public:
  // Thrown by read_to() when more is asked for than addresses were reserved for.
  struct Outgrown {};

  // Reserves addresses for the first `reserved_bytes` of the file, but no memory: where addresses
  // are limited (ulimit -v), there may be fewer than the file has bytes. Throws std::system_error,
  // with the path, when the file cannot be opened or is not a regular file.
  explicit HeaderBytes(std::filesystem::path path,
                       std::size_t reserved_bytes = std::numeric_limits<std::size_t>::max());
  ~HeaderBytes();
  HeaderBytes(const HeaderBytes&) = delete;
  HeaderBytes& operator=(const HeaderBytes&) = delete;

  // As many bytes as the file has. Only those that read_to() has read may be used.
  std::span<const std::byte> bytes() const { return {memory_, file_bytes_}; }

  const base::FileIdentity& identity() const { return identity_; }  // of the file, when opened

  // Reads at least up to byte `end` of the file. Throws Outgrown, and std::system_error when the
  // file cannot be read, or has become shorter.
  void read_to(std::uint64_t end);

  // Closes the file and releases the addresses after what was read.
  void finish();

 private:
  std::filesystem::path path_;
  base::Descriptor file_;
  base::FileIdentity identity_;
  std::byte* memory_ = nullptr;  // owned; null for an empty file
  std::size_t file_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;  // of addresses
  std::size_t read_bytes_ = 0;
};

}  // namespace sluice::gguf
