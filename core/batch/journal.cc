#include "core/batch/journal.h"

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <system_error>
#include <unistd.h>

#include "core/error.h"

namespace sluice::batch {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

// Gives the file's bytes in pieces, until `take` returns false.
template <class Take>
void read_pieces(int descriptor, Take take) {
  std::string piece(piece_bytes, '\0');
  for (std::uint64_t offset = 0;;) {
    const ssize_t n = ::pread(descriptor, piece.data(), piece.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw std::system_error(errno, std::generic_category());
    if (n == 0 || !take(std::string_view(piece).substr(0, static_cast<std::size_t>(n)))) return;
    offset += static_cast<std::uint64_t>(n);
  }
}

void sync_path(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (synced || error == EINVAL) return;  // some file systems have nothing to synchronise
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot synchronise {}", path.string()));
}

}  // namespace

void sync_file(const std::filesystem::path& path) {
  sync_path(path, O_RDONLY);
}

void sync_folder_of(const std::filesystem::path& path) {
  sync_path(path.has_parent_path() ? path.parent_path() : ".", O_RDONLY | O_DIRECTORY);
}

Journal::Journal(const std::filesystem::path& path, bool restart) : path_(path) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
  try {
    lock();
    sync_folder_of(path_);
    if (restart) cut(0);
    recover();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

Journal::~Journal() {
  ::fdatasync(descriptor_);
  ::close(descriptor_);
}

void Journal::fail(int error) const {
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot write {}", path_.string()));
}

void Journal::lock() {
  try {
    lock_ = boost::interprocess::file_lock(path_.c_str());
    if (lock_.try_lock()) return;
  } catch (const boost::interprocess::interprocess_exception& error) {
    throw std::system_error(error.get_native_error(), std::generic_category(),
                            fmt::format("cannot lock {}", path_.string()));
  }
  throw UsageError(fmt::format("another process is writing {}: wait for it, or name another output",
                               path_.string()));
}

void Journal::recover() {
  std::string line;
  std::uint64_t whole_bytes = 0;  // of the lines taken so far
  std::uint64_t all_bytes = 0;
  const auto take_line = [&] {
    const std::optional<ResultFacts> facts = read_result(line);
    if (!facts) {
      throw UsageError(fmt::format(
          "{}, line {}: not a result of sluice batch; name another output, or give --restart to "
          "write it anew",
          path_.string(), found_.size() + 1));
    }
    found_.push_back(*facts);
    whole_bytes += line.size() + 1;
    line.clear();
  };
  const auto take = [&](std::string_view piece) {
    all_bytes += piece.size();
    for (const char byte : piece) {
      if (byte == '\0') return false;
      if (byte == '\n') {
        take_line();
      } else {
        line += byte;
      }
    }
    return true;
  };
  try {
    read_pieces(descriptor_, take);
  } catch (const std::system_error& error) {
    fail(error.code().value());
  }
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  if (end < 0) fail(errno);
  size_ = whole_bytes;
  cut_bytes_ = static_cast<std::uint64_t>(end) - whole_bytes;
  if (cut_bytes_ != 0) cut(whole_bytes);
}

void Journal::cut(std::uint64_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail(errno);
  size_ = size;
}

void Journal::append(std::string_view lines) {
  std::size_t done = 0;
  while (done < lines.size()) {
    const ssize_t n = ::pwrite(descriptor_, lines.data() + done, lines.size() - done,
                               static_cast<off_t>(size_ + done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      const int error = n == 0 ? EIO : errno;
      cut(size_);
      fail(error);
    }
  }
  size_ += lines.size();
  if (std::chrono::steady_clock::now() - last_sync_ >= sync_period) sync();
}

void Journal::sync() {
  if (::fdatasync(descriptor_) != 0) fail(errno);
  last_sync_ = std::chrono::steady_clock::now();
}

}  // namespace sluice::batch
