// The beginning of a file in memory of its own: as much as a parser asks for, at addresses that do
// not change.
//
// A header is checked once and looked at for as long as the model is used. A mapping would show
// what the file holds by then: a file that is overwritten or cut short would change lengths that
// have been checked, or end the process with SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace sluice::gguf {

class HeaderBytes {
 public:
  // Sets addresses aside for the whole file, and no memory. Throws std::system_error, with the
  // path, when the file cannot be opened or is not a regular one.
  explicit HeaderBytes(std::filesystem::path path);
  ~HeaderBytes();
  HeaderBytes(const HeaderBytes&) = delete;
  HeaderBytes& operator=(const HeaderBytes&) = delete;

  // As many bytes as the file has; only those that were read may be looked at.
  std::span<const std::byte> bytes() const { return {memory_, file_bytes_}; }

  // Reads up to byte `end` of the file at least; there is room up to its size. Throws
  // std::system_error when it cannot be read, or is shorter by now.
  void read_to(std::uint64_t end);

  // Closes the file and gives back the addresses beyond what was read.
  void finish();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::byte* memory_ = nullptr;  // owned; null for an empty file
  std::size_t file_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;  // of addresses
  std::size_t read_bytes_ = 0;
};

}  // namespace sluice::gguf
