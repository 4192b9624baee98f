#include "core/cli/files.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace sluice::cli {
namespace {

[[noreturn]] void throw_io(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path.string();
  const auto close = [](std::FILE* open) { std::fclose(open); };
  std::unique_ptr<std::FILE, decltype(close)> opened(
      standard_input ? nullptr : std::fopen(path.c_str(), "rb"), close);
  if (!standard_input && !opened) throw_io(errno, fmt::format("cannot open {}", name));
  std::FILE* file = standard_input ? stdin : opened.get();
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file);
    text.append(buffer.data(), n);
    if (n < buffer.size()) break;
  }
  if (std::ferror(file)) throw_io(errno, fmt::format("cannot read {}", name));
  return text;
}

// A symbolic link keeps pointing to the file: it is the file behind it that is replaced.
AtomicFile::AtomicFile(const std::filesystem::path& path) : target_(path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  int descriptor = -1;
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    if (const auto real = std::filesystem::canonical(path, ignored); !ignored) target_ = real;
    temporary_ = target_;
    temporary_ += fmt::format(".{}.tmp", ::getpid());
    descriptor = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (descriptor < 0) {
    const int error = errno;
    temporary_.clear();
    fail(error);
  }
  file_ = ::fdopen(descriptor, "wb");
  if (!file_) {
    const int error = errno;
    ::close(descriptor);
    if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
    fail(error);
  }
}

AtomicFile::~AtomicFile() {
  if (file_) std::fclose(file_);
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail(errno);
}

void AtomicFile::commit() {
  if (std::fflush(file_) != 0) fail(errno);
  if (!temporary_.empty() && ::fsync(::fileno(file_)) != 0) fail(errno);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail(errno);
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

void AtomicFile::fail(int error) const {
  throw_io(error, fmt::format("cannot write {}", target_.string()));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace sluice::cli
