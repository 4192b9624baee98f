// A file that appears under its name only when it is complete. Until commit() the bytes go to a
// temporary file beside it, which is removed when writing fails or is given up.
//
// Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace sluice::gguf {

class OutputFile {
 public:
  // Creates the temporary file, PATH.partial-PID, in the folder of `path`. What already has that
  // name must be a regular file. Throws std::system_error, as all members do, with `path` in the
  // message.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Claims disk space, so that a full disk is known before the work and not after it. Where the
  // file system cannot, nothing happens.
  void reserve(std::uint64_t bytes);

  void write(std::span<const std::byte> bytes);

  std::uint64_t position() const { return position_; }

  // Waits until what was written is on the disk, so that a file under the final name is complete
  // even after the machine has failed; and takes it out of the page cache.
  void synchronise();

  // Closes the file and gives it its name, replacing what had it before.
  void commit();

 private:
  [[noreturn]] void fail(int code) const;

  std::filesystem::path path_;
  std::filesystem::path partial_path_;
  std::uint64_t position_ = 0;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace sluice::gguf
