#include "core/model/file_bytes.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace sluice::model {

FileBytes::FileBytes(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw std::system_error(errno, std::generic_category(), fmt::format("{}", path_.string()));
  }
}

FileBytes::~FileBytes() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void FileBytes::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = got < 0 ? errno : EIO;
      throw std::system_error(
          error, std::generic_category(),
          fmt::format("{}: cannot read {} bytes at offset {}{}", path_.string(), out.size(), offset,
                      got == 0 ? " (the file has become shorter)" : ""));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

}  // namespace sluice::model
