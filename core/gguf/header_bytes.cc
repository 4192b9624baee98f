#include "core/gguf/header_bytes.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/files/read_at.h"

namespace sluice::gguf {
namespace {

// Headers have some MiB, most of them the vocabulary.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

std::system_error file_error(const std::filesystem::path& path, int code, const char* what) {
  return {code, std::generic_category(), path.string() + ": cannot be " + what};
}

std::size_t whole_pieces(std::size_t bytes) {
  return (bytes + piece_bytes - 1) / piece_bytes * piece_bytes;
}

}  // namespace

HeaderBytes::HeaderBytes(std::filesystem::path path, std::size_t reserved_bytes)
    : path_(std::move(path)) {
  // Without O_NONBLOCK a FIFO would wait for a writer.
  file_ = base::Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_.is_open()) throw file_error(path_, errno, "opened");
  struct stat status {};
  int code = ::fstat(file_.number(), &status) != 0 ? errno : 0;
  identity_ = base::FileIdentity::of(status);
  if (code == 0 && S_ISDIR(status.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ExitCode::io, path_.string() +
                                  ": a model is read in several places at once, so it has to be a "
                                  "file, and this is a device or a pipe");
  }
  if (code == 0 && status.st_size != 0) {
    file_bytes_ = static_cast<std::size_t>(status.st_size);
    mapped_bytes_ = whole_pieces(std::min(file_bytes_, reserved_bytes));
    void* memory = ::mmap(nullptr, mapped_bytes_, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      code = errno;
    } else {
      memory_ = static_cast<std::byte*>(memory);
    }
  }
  if (code != 0) throw file_error(path_, code, "read");
}

HeaderBytes::~HeaderBytes() {
  if (memory_ != nullptr) ::munmap(memory_, mapped_bytes_);
}

void HeaderBytes::read_to(std::uint64_t end) {
  if (end <= read_bytes_) return;
  const std::size_t wanted = std::min(whole_pieces(static_cast<std::size_t>(end)), file_bytes_);
  if (wanted > mapped_bytes_) throw Outgrown{};
  if (::mprotect(memory_ + read_bytes_, whole_pieces(wanted - read_bytes_),
                 PROT_READ | PROT_WRITE) != 0) {
    throw file_error(path_, errno, "read into memory");
  }
  try {
    read_bytes_ +=
        files::read_at(file_.number(), {memory_ + read_bytes_, wanted - read_bytes_}, read_bytes_);
  } catch (const std::system_error& error) {
    throw file_error(path_, error.code().value(), "read");
  }
  if (read_bytes_ != wanted) throw file_error(path_, EIO, "read: it became shorter meanwhile");
}

void HeaderBytes::finish() {
  file_.close();
  const std::size_t kept = whole_pieces(read_bytes_);
  if (kept == mapped_bytes_) return;
  ::munmap(memory_ + kept, mapped_bytes_ - kept);
  mapped_bytes_ = kept;
  if (kept == 0) memory_ = nullptr;
}

}  // namespace sluice::gguf
