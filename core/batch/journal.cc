#include "core/batch/journal.h"

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <system_error>

#include "core/error.h"
#include "core/files/durable_file.h"

namespace sluice::batch {

Journal::Journal(const std::filesystem::path& path, files::SystemCalls& system)
    : system_(system), path_(path) {
  open();
  try {
    lock();
    files::sync_folder_of(path_, system_);
    scan_ = scan_journal(descriptor_);
  } catch (const std::system_error& error) {
    system_.close(descriptor_);
    throw std::system_error(error.code(), fmt::format("cannot open {}", path_.string()));
  } catch (...) {
    system_.close(descriptor_);
    throw;
  }
}

Journal::~Journal() {
  if (dirty_since_) system_.fdatasync(descriptor_);
  system_.close(descriptor_);
}

void Journal::fail(int error) const {
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot write {}", path_.string()));
}

// Not blocking, so that a pipe is seen to be one and not waited for.
void Journal::open() {
  descriptor_ = system_.open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  struct stat facts {};
  if (descriptor_ >= 0 && ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode)) return;
  const int error = descriptor_ >= 0 ? EINVAL : errno;
  if (descriptor_ >= 0) system_.close(descriptor_);
  if (error != EINVAL && error != EISDIR && error != ENXIO) fail(error);
  throw UsageError(
      fmt::format("{} is not a regular file, which going on after an interruption needs: use -o - "
                  "and redirect it",
                  path_.string()));
}

void Journal::lock() {
  try {
    lock_ = boost::interprocess::file_lock(path_.c_str());
    if (lock_.try_lock()) return;
  } catch (const boost::interprocess::interprocess_exception& error) {
    throw std::system_error(error.get_native_error(), std::generic_category());
  }
  throw UsageError(fmt::format("another process is writing {}: wait for it, or name another output",
                               path_.string()));
}

void Journal::refuse_foreign() const {
  if (scan_.verdict != JournalVerdict::foreign) return;
  throw UsageError(fmt::format(
      "{}, line {}: not a result of sluice batch, so the file is left as it is; name another "
      "output, or move it away",
      path_.string(), scan_.foreign_line));
}

std::uint64_t Journal::go_on() {
  refuse_foreign();
  size_ = scan_.whole_bytes;
  const std::uint64_t torn_bytes = scan_.bytes - scan_.whole_bytes;
  if (torn_bytes != 0) cut(size_);
  sync();  // the process that wrote them may have been killed before it did
  return torn_bytes;
}

void Journal::begin_anew() {
  refuse_foreign();
  cut(0);
  scan_ = {};
  sync();
}

void Journal::cut(std::uint64_t size) {
  if (system_.ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail(errno);
  size_ = size;
}

void Journal::append(std::string_view lines, Clock::time_point now) {
  std::size_t done = 0;
  while (done < lines.size()) {
    const ssize_t n = system_.pwrite(descriptor_, lines.data() + done, lines.size() - done,
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
  if (!dirty_since_) dirty_since_ = now;
}

void Journal::sync() {
  if (system_.fdatasync(descriptor_) != 0) {
    const int error = errno;
    dirty_since_.reset();
    cut(durable_bytes_);
    fail(error);
  }
  durable_bytes_ = size_;
  dirty_since_.reset();
}

void Journal::sync_if_due(Clock::time_point now) {
  const Clock::time_point next_look = now + (now - last_look_);
  last_look_ = now;
  if (dirty_since_ && next_look - *dirty_since_ >= sync_period) sync();
}

}  // namespace sluice::batch
