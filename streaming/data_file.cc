#include "streaming/data_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

#include "streaming/alignment.h"

namespace sluice::streaming {
namespace {

std::system_error file_failure(const std::filesystem::path& path, int error,
                               const std::string& what) {
  return {error, std::generic_category(), path.string() + ": " + what};
}

base::Descriptor open_for_reading(const std::filesystem::path& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  } while (descriptor < 0 && errno == EINTR);
  return base::Descriptor(descriptor);
}

// Recent kernels accept O_DIRECT on tmpfs and then ignore it: the file lies in the page cache.
bool lies_in_memory(int descriptor) {
  struct statfs facts {};
  return fstatfs(descriptor, &facts) == 0 &&
         (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC);
}

// The alignment that direct reads need; 0: the file system says that it has no direct reads.
std::uint64_t direct_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx facts {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    if (facts.stx_dio_offset_align == 0) return 0;
    return std::max<std::uint64_t>(
        {page_bytes, facts.stx_dio_offset_align, facts.stx_dio_mem_align});
  }
#else
  static_cast<void>(descriptor);
#endif
  return page_bytes;
}

}  // namespace

DataFile::DataFile(std::filesystem::path path, Access access)
    : path_(std::move(path)), alignment_(page_bytes) {
  if (access == Access::direct) open_direct();
  if (!descriptor_.is_open()) open_buffered();
  struct stat facts {};
  int error = fstat(descriptor(), &facts) != 0 ? errno : 0;
  if (error == 0 && S_ISDIR(facts.st_mode)) error = EISDIR;
  if (error == 0 && !S_ISREG(facts.st_mode)) error = EINVAL;
  if (error != 0) throw file_failure(path_, error, "cannot be read as a regular file");
  identity_ = base::FileIdentity::of(facts);
  // O_NONBLOCK was needed for the open only. With it, io_uring of kernels before 6.5 would answer
  // EAGAIN to every read for which the device has to wait.
  fcntl(descriptor(), F_SETFL, fcntl(descriptor(), F_GETFL) & ~O_NONBLOCK);
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::move(other.descriptor_)),
      identity_(other.identity_),
      alignment_(other.alignment_),
      is_direct_(other.is_direct_),
      refusal_(std::move(other.refusal_)),
      refused_error_(other.refused_error_.load()) {}

void DataFile::open_direct() {
  descriptor_ = open_for_reading(path_, O_DIRECT | O_NONBLOCK);
  if (!descriptor_.is_open()) {
    if (errno != EINVAL && errno != EOPNOTSUPP) {
      throw file_failure(path_, errno, "cannot be opened");
    }
    refusal_ = path_.string() + ": its file system does not offer O_DIRECT";
    return;
  }
  const std::uint64_t alignment = direct_alignment(descriptor());
  if (alignment != 0 && !lies_in_memory(descriptor())) {
    alignment_ = alignment;
    is_direct_ = true;
    return;
  }
  refusal_ = path_.string() + (alignment == 0 ? ": its file system does not offer O_DIRECT"
                                              : ": lies in memory (tmpfs), O_DIRECT has no effect");
  descriptor_.close();
}

void DataFile::open_buffered() {
  // O_NONBLOCK: the open must not block when the path is a FIFO; regular files ignore the flag.
  descriptor_ = open_for_reading(path_, O_NONBLOCK);
  if (!descriptor_.is_open()) throw file_failure(path_, errno, "cannot be opened");
}

std::int64_t DataFile::read(const ReadPiece& piece, const ReadResults& results) const {
  if (!is_direct_) return read_buffered(piece, results);
  const ssize_t got_bytes =
      pread(descriptor(), piece.buffer, piece.bytes, static_cast<off_t>(piece.offset));
  const std::int64_t result = seen(results, "pread", piece, got_bytes < 0 ? -errno : got_bytes);
  if (result != -EINVAL && result != -EOPNOTSUPP) return result;
  int none = 0;
  refused_error_.compare_exchange_strong(none, static_cast<int>(-result));
  return read_buffered(piece, results);
}

// Opens a second descriptor when the first is for direct reads. Slow, but rarely needed.
std::int64_t DataFile::read_buffered(const ReadPiece& piece, const ReadResults& results) const {
  const auto offset = static_cast<off_t>(piece.offset);
  base::Descriptor second;
  if (is_direct_) {
    // Opens the same file again, even if another file has its name by now.
    second = open_for_reading("/proc/self/fd/" + std::to_string(descriptor()), 0);
    if (!second.is_open()) return -errno;
  }
  const int buffered = second.is_open() ? second.number() : descriptor();
  const ssize_t got_bytes = pread(buffered, piece.buffer, piece.bytes, offset);
  const std::int64_t result = got_bytes < 0 ? -errno : got_bytes;
  posix_fadvise(buffered, offset, static_cast<off_t>(piece.bytes), POSIX_FADV_DONTNEED);
  return seen(results, "buffered", piece, result);
}

base::FileIdentity DataFile::current_identity() const {
  struct stat facts {};
  return fstat(descriptor(), &facts) == 0 ? base::FileIdentity::of(facts) : base::FileIdentity();
}

std::string refused_direct_reads(std::span<const DataFile> files) {
  for (const DataFile& file : files) {
    const int error = file.refused_error();
    if (error == 0) continue;
    return file.path().string() + ": its file system refuses direct reads (" +
           std::generic_category().message(error) + "), these go through the page cache";
  }
  return "";
}

}  // namespace sluice::streaming
