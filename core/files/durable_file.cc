#include "core/files/durable_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>

namespace sluice::files {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".partial-XXXXXX";
constexpr std::size_t name_bytes_max = 255;  // NAME_MAX of Linux

// There is no call that only reads the umask. While it is set, a file that another thread creates
// gets fewer rights, never more.
mode_t process_umask() {
  static const mode_t mask = [] {
    const mode_t before = ::umask(077);
    ::umask(before);
    return before;
  }();
  return mask;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A pattern for mkostemp of a file, with as much of its name as NAME_MAX allows.
std::string temporary_name(const fs::path& path) {
  return path.filename().string().substr(0, name_bytes_max - suffix.size()) + std::string(suffix);
}

// Where a name that a user has given leads to.
fs::path target_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  return ignored ? path : real;
}

}  // namespace

DurableFile::DurableFile(const fs::path& path, const DurableFileOptions& options,
                         SystemCalls& system)
    : system_(system), target_(path), keep_cached_(options.keep_cached) {
  const bool is_users = options.named_by == NamedBy::user;
  std::error_code ignored;
  const fs::file_status found =
      is_users ? fs::status(target_, ignored) : fs::symlink_status(target_, ignored);
  const bool is_special =
      fs::exists(found) && !fs::is_regular_file(found) && !fs::is_symlink(found);
  if (is_special && (!is_users || fs::is_directory(found))) {
    fail(fs::is_directory(found) ? EISDIR : EINVAL);
  }
  if (is_special) {
    descriptor_ = system_.open(target_.c_str(), O_WRONLY | O_CLOEXEC, 0);
    if (descriptor_ < 0) fail(errno);
    return;
  }
  if (is_users) {
    target_ = target_of(target_);
    remove_unfinished(target_, system_);
  }
  struct stat replaced {};
  const bool keeps_mode =
      is_users && ::lstat(target_.c_str(), &replaced) == 0 && S_ISREG(replaced.st_mode);
  open_temporary(options.mode & (keeps_mode ? replaced.st_mode : ~process_umask()));
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) system_.close(descriptor_);
  if (!temporary_.empty()) system_.unlink(temporary_.c_str());
}

void DurableFile::open_temporary(mode_t mode) {
  std::string name;
  do {
    if (descriptor_ >= 0) close();
    name = (folder_of(target_) / temporary_name(target_)).string();
    descriptor_ = system_.mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
  } while (!lock());
  // So far it is its owner's alone. It stays so where a file system does not let others than the
  // owner of the mount change modes (FAT, for example).
  if (system_.fchmod(descriptor_, mode) != 0 && errno != EPERM) {
    const int error = errno;
    system_.close(descriptor_);
    system_.unlink(name.c_str());
    fail(error);
  }
  temporary_ = std::move(name);
}

// False where another process has removed the file, as it may do before there is a lock. A file
// system without locks lets nobody remove it.
bool DurableFile::lock() const {
  while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat facts {};
  return ::fstat(descriptor_, &facts) != 0 || facts.st_nlink != 0;
}

void DurableFile::reserve(std::uint64_t bytes) {
  if (is_direct() || bytes == 0) return;
  while (system_.fallocate(descriptor_, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS) return;
    if (errno != EINTR) fail(errno);
  }
  reserved_ = std::max(reserved_, bytes);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = system_.write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    position_ += static_cast<std::uint64_t>(written);
  }
  size_ = std::max(size_, position_);
}

void DurableFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        system_.pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  size_ = std::max(size_, offset);
}

void DurableFile::commit() {
  if (is_direct()) return close();
  synchronise();
  if (!keep_cached_) (void)system_.posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
  // The lock goes with the descriptor, and until it has its name others may remove the file.
  if (system_.rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  close();
  sync_folder_of(target_, system_);
}

void DurableFile::synchronise() {
  if (is_direct()) return;
  if (reserved_ > size_ && system_.ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) {
    fail(errno);
  }
  if (system_.fsync(descriptor_) != 0) fail(errno);
}

// Some file systems report a failed write of what was not synchronised only here.
void DurableFile::close() {
  if (system_.close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void DurableFile::fail(int error) const {
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot write {}", target_.string()));
}

void make_private_folder(const fs::path& path, SystemCalls& system) {
  std::error_code ignored;
  if (path.empty() || fs::is_directory(path, ignored)) return;
  make_private_folder(path.parent_path(), system);
  if (system.mkdir(path.c_str(), 0700) == 0) return;
  const int error = errno;
  if (error == EEXIST && fs::is_directory(path, ignored)) return;  // another process was faster
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot make the folder {}", path.string()));
}

void remove_file(const fs::path& path, SystemCalls& system) {
  if (system.unlink(path.c_str()) == 0 || errno == ENOENT) return;
  throw std::system_error(errno, std::generic_category(),
                          fmt::format("cannot remove {}", path.string()));
}

void remove_unfinished(const fs::path& path, SystemCalls& system) {
  const fs::path target = target_of(path);
  const std::string pattern = temporary_name(target);
  const std::string_view fixed =
      std::string_view(pattern).substr(0, pattern.find_last_not_of('X') + 1);
  std::error_code ignored;
  for (fs::directory_iterator at(folder_of(target), ignored), end; at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    const bool is_ours = name.size() == pattern.size() && name.starts_with(fixed);
    if (!is_ours || !fs::is_regular_file(at->symlink_status(ignored))) continue;
    const int descriptor =
        system.open(at->path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) system.unlink(at->path().c_str());
    system.close(descriptor);
  }
}

// A page whose writing has failed counts as written, so the second fdatasync succeeds. But like all
// pages that count as written it can be dropped.
void forget_unwritten(int descriptor, SystemCalls& system) {
  (void)system.fdatasync(descriptor);
  (void)system.posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

void sync_folder_of(const fs::path& path, SystemCalls& system) {
  const fs::path folder = folder_of(path);
  const int descriptor = system.open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  const bool is_synced = descriptor >= 0 && system.fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) system.close(descriptor);
  if (is_synced || error == EINVAL) return;  // some file systems have nothing to synchronise
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot synchronise {}", folder.string()));
}

}  // namespace sluice::files
