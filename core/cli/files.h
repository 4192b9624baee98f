// Whole files in, and files out that are either complete or not there.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sluice::cli {

// The bytes of a file ("-" is standard input). Throws std::system_error.
std::string read_text(const std::filesystem::path& path);

// A file that appears under its name only when it is complete: written beside it under a temporary
// name, synchronised, renamed. What is not a regular file (/dev/stdout, a pipe) is written
// directly. All functions throw std::system_error, which names the file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();  // removes the temporary file unless it was committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty when the target is written directly
  std::FILE* file_ = nullptr;
};

// Writes a text as an AtomicFile.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sluice::cli
