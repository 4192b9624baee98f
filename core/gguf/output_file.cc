#include "core/gguf/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace sluice::gguf {

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  // Renaming would replace a device or a folder by the file.
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  if (std::filesystem::is_directory(status)) fail(EISDIR);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) fail(EINVAL);

  partial_path_ = path_;
  partial_path_ += fmt::format(".partial-{}", ::getpid());
  descriptor_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(partial_path_.c_str());
}

void OutputFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  int code = 0;
  do {
    code = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code != 0 && code != EINVAL && code != EOPNOTSUPP) fail(code);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    position_ += static_cast<std::uint64_t>(written);
  }
}

void OutputFile::synchronise() {
  if (::fsync(descriptor_) != 0) fail(errno);
  (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
}

void OutputFile::commit() {
  // Some file systems report a failed write only here.
  if (::ftruncate(descriptor_, static_cast<off_t>(position_)) != 0) fail(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  std::error_code error;
  std::filesystem::rename(partial_path_, path_, error);
  if (error) fail(error.value());
  committed_ = true;
}

void OutputFile::fail(int code) const {
  throw std::system_error(code, std::generic_category(), path_.string() + ": cannot be written");
}

}  // namespace sluice::gguf
