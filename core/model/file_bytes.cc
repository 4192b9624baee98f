#include "core/model/file_bytes.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "core/files/read_at.h"

namespace sluice::model {

FileBytes::FileBytes(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_.is_open()) throw std::system_error(errno, std::generic_category(), path_.string());
}

FileBytes::FileBytes(const gguf::ModelFile& file) : FileBytes(file.path) {
  struct stat facts {};
  if (::fstat(file_.number(), &facts) != 0) {
    throw std::system_error(errno, std::generic_category(), path_.string());
  }
  file.require_same(base::FileIdentity::of(facts));
}

void FileBytes::expect(std::uint64_t offset, std::size_t bytes) const {
  ::posix_fadvise(file_.number(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_WILLNEED);
}

void FileBytes::read(std::uint64_t offset, std::span<std::byte> out) const {
  const auto fail = [&](std::error_code error, std::string_view why) {
    throw std::system_error(error, fmt::format("{}: cannot read {} bytes at offset {}{}",
                                               path_.string(), out.size(), offset, why));
  };
  try {
    if (files::read_at(file_.number(), out, offset) == out.size()) return;
  } catch (const std::system_error& error) {
    fail(error.code(), "");
  }
  fail(std::make_error_code(std::errc::io_error), " (the file has become shorter)");
}

}  // namespace sluice::model
