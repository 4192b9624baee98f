// A file that appears under its name only when it is complete and on the disk.
//
// Until commit() the bytes go to a temporary file in the same folder, NAME.partial-XXXXXX with
// unpredictable letters (mkostemp). So neither a symbolic link placed there nor the remains of a
// killed process can be in the way. commit() synchronises the file before it renames it, and the
// folder afterwards: after a power loss at any moment there is the old file or the new one, whole.
// A file that is destroyed without commit() is removed. What a killed process has left is removed
// when the same file is written again with a name that a user chose: a lock of the temporary file,
// which ends with its process, says that it is still being written.
//
// All members throw std::system_error with the name of the file. Used by one thread.
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
  // A symbolic link under this name is replaced and never followed. Anything else but a regular
  // file is refused.
  program,
  // A symbolic link is followed, and the file behind it is replaced. Anything that is not a regular
  // file (a pipe, /dev/stdout) is written directly: the bytes appear at once and are not
  // synchronised.
  user
};

struct DurableFileOptions {
  // Before the umask of the process. A file that its user has named keeps of its mode what this
  // allows: whoever has made it private finds it private again.
  mode_t mode = 0666;
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

  // Reserves space on the disk, so that a full disk is noticed before the work and not after it.
  // Does nothing where the file system cannot reserve space.
  void reserve(std::uint64_t bytes);

  // Appends after what write() has written so far.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  std::uint64_t position() const { return position_; }  // bytes that write() has written

  // Writes at any offset of a regular file; gaps read as zeros.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  // Lets the disk have what was written so far, still under the temporary name: what fails here
  // leaves time to keep what commit() is going to replace.
  void synchronise();

  // Nothing may be written after this.
  void commit();

 private:
  bool is_direct() const { return temporary_.empty(); }
  void open_temporary(mode_t mode);
  bool lock() const;
  void close();
  [[noreturn]] void fail(int error) const;

  SystemCalls& system_;
  std::filesystem::path target_;
  std::string temporary_;  // empty when the target is written directly, and after commit()
  bool keep_cached_;
  int descriptor_ = -1;
  std::uint64_t position_ = 0;
  std::uint64_t size_ = 0;      // end of the last byte written
  std::uint64_t reserved_ = 0;  // the size that reserve() gave the file
};

// Makes a folder, and those above it that are missing, for this user alone. Throws
// std::system_error.
void make_private_folder(const std::filesystem::path& path, SystemCalls& system = kernel());

// Removes a file, if it is there. Throws std::system_error.
void remove_file(const std::filesystem::path& path, SystemCalls& system = kernel());

// Removes what killed processes have left of a file of this name (DurableFile). What cannot be
// removed stays.
void remove_unfinished(const std::filesystem::path& path, SystemCalls& system = kernel());

// Lets what is read of an open file be what the disk has of it, where the process that wrote it may
// have ended before it was synchronised: after a write has failed, the system may go on to show
// what the disk never got, and report it as synchronised. Reports no failure: what could not be
// written is read as the disk has it.
void forget_unwritten(int descriptor, SystemCalls& system = kernel());

// Makes the names in a file's folder durable. Throws std::system_error.
void sync_folder_of(const std::filesystem::path& path, SystemCalls& system = kernel());

}  // namespace sluice::files
