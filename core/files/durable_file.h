// A file that appears under its name when it is complete and on the disk, or not at all.
//
// Until commit() the bytes go to a temporary file in the same folder, NAME.partial-XXXXXX with
// letters that nobody can foresee (mkostemp), so that neither a symbolic link placed there nor what
// a killed process left can be in the way. commit() synchronises the file before it gets its name,
// and the folder after: a power loss at any moment leaves the old file or the new one, whole. A
// file that is destroyed without commit() is taken away.
//
// All members throw std::system_error that names the file. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "core/files/system_calls.h"

namespace sluice::files {

// Who chose the name of a file.
enum class NamedBy {
  // A symbolic link under this name is replaced and never followed. What is neither a link nor a
  // regular file is refused.
  program,
  // A symbolic link leads to the file behind it, which is replaced. What is not a regular file (a
  // pipe, /dev/stdout) is written directly: it appears at once and is not synchronised.
  user
};

struct DurableFileOptions {
  mode_t mode = 0666;  // less what the process's umask takes away
  NamedBy named_by = NamedBy::program;
  bool keep_cached = true;  // false: the page cache does not keep what was written
};

class DurableFile {
 public:
  explicit DurableFile(const std::filesystem::path& path, const DurableFileOptions& options = {},
                       SystemCalls& system = kernel());
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // Claims space on the disk, so that a full one is known before the work and not after it. Where
  // the file system cannot, nothing happens.
  void reserve(std::uint64_t bytes);

  // Appends to what write() has written.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  std::uint64_t position() const { return position_; }  // bytes that write() has written

  // Writes at any place of a regular file; a gap that stays reads as zeros.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  // Nothing may be written afterwards.
  void commit();

 private:
  bool is_direct() const { return temporary_.empty(); }
  void open_temporary(mode_t mode);
  void close();
  [[noreturn]] void fail(int error) const;

  SystemCalls& system_;
  std::filesystem::path target_;
  std::string temporary_;  // empty when the target is written directly, and after commit()
  bool keep_cached_;
  int descriptor_ = -1;
  std::uint64_t position_ = 0;
  std::uint64_t size_ = 0;      // where the last byte written ends
  std::uint64_t reserved_ = 0;  // the size that reserve() gave the file
};

// Makes the names in a file's folder durable. Throws std::system_error.
void sync_folder_of(const std::filesystem::path& path, SystemCalls& system = kernel());

}  // namespace sluice::files
