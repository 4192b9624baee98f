// A file opened for reading, the way that suits streaming: past the page cache where the file
// system allows it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

#include "base/descriptor.h"
#include "base/file_identity.h"
#include "streaming/read_results.h"

namespace sluice::streaming {

class DataFile {
 public:
  enum class Access {
    direct,    // O_DIRECT where it works; else like buffered, and refusal() says why
    buffered,  // through the page cache
  };

  // Throws std::system_error that names the file when it cannot be opened or is no regular file.
  DataFile(std::filesystem::path path, Access access);
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&&) = delete;

  int descriptor() const { return descriptor_.number(); }

  // Reads what remains of a piece and blocks meanwhile. Returns the bytes read, or -errno. When the
  // file system refuses a direct read (EINVAL, EOPNOTSUPP), reads through the page cache and drops
  // the pages from it. Any number of threads may call it.
  std::int64_t read(const ReadPiece& piece, const ReadResults& results) const;
  // The errno of the first direct read that was refused; 0: none so far.
  int refused_error() const { return refused_error_; }

  const std::filesystem::path& path() const { return path_; }
  // When it was opened.
  std::uint64_t bytes() const { return identity_.bytes; }
  const base::FileIdentity& identity() const { return identity_; }
  bool is_direct() const { return is_direct_; }
  const std::string& refusal() const { return refusal_; }

  // Offsets, lengths and buffer addresses of reads must be multiples of this many bytes: a page,
  // or more when statx(STATX_DIOALIGN) asks for more.
  std::uint64_t alignment() const { return alignment_; }

  // At this moment. A file that was truncated in use is shorter than bytes(); one that was written
  // to has another identity(), or none (all 0) when the system no longer tells it.
  base::FileIdentity current_identity() const;
  bool has_changed() const { return current_identity() != identity_; }

 private:
  void open_direct();
  void open_buffered();
  std::int64_t read_buffered(const ReadPiece& piece, const ReadResults& results) const;

  std::filesystem::path path_;
  base::Descriptor descriptor_;
  base::FileIdentity identity_;
  std::uint64_t alignment_ = 0;
  bool is_direct_ = false;
  std::string refusal_;
  mutable std::atomic<int> refused_error_ = 0;
};

// A line for the user when the file system of some file refused direct reads although it had
// offered O_DIRECT; else "".
std::string refused_direct_reads(std::span<const DataFile> files);

}  // namespace sluice::streaming
