#include "core/batch/journal.h"

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/sync/file_lock.hpp>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <span>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "base/file_identity.h"
#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/files/read_at.h"

namespace sluice::batch {
namespace {

constexpr std::size_t rewrite_bytes = std::size_t{1} << 20;

}  // namespace

void require_own_output(int descriptor, const std::filesystem::path& path, std::uint64_t bytes) {
  struct stat facts {};
  const bool has_name = base::has_name(descriptor, path.c_str());
  if (has_name && ::fstat(descriptor, &facts) == 0 &&
      static_cast<std::uint64_t>(facts.st_size) == bytes) {
    return;
  }
  throw Error(ExitCode::io,
              fmt::format("{} was {} while the job ran, so what it computes can no longer be kept "
                          "there; the same command goes on with what the file has now",
                          path.string(),
                          has_name ? "written to by another program" : "removed or replaced"));
}

Journal::Journal(const std::filesystem::path& path, files::SystemCalls& system,
                 const ScanCheck& check, mode_t mode)
    : system_(system), path_(path) {
  open(mode);
  try {
    lock();
    files::remove_unfinished(path_, system_);
    files::sync_folder_of(path_, system_);
    files::forget_unwritten(descriptor_, system_);
    scan_ = scan_journal(descriptor_, check);
  } catch (const std::system_error& error) {
    system_.close(descriptor_);
    throw std::system_error(error.code(), fmt::format("cannot open {}", path_.string()));
  } catch (...) {
    system_.close(descriptor_);
    throw;
  }
}

Journal::~Journal() {
  // As in sync(): what may not be on the disk is not to be found there.
  if (dirty_since_ && system_.fdatasync(descriptor_) != 0) {
    system_.ftruncate(descriptor_, static_cast<off_t>(durable_bytes_));
  }
  system_.close(descriptor_);
}

void Journal::fail(int error) const {
  throw std::system_error(error, std::generic_category(),
                          fmt::format("cannot write {}", path_.string()));
}

// Opened non-blocking: a pipe is refused instead of being waited for.
void Journal::open(mode_t mode) {
  descriptor_ = system_.open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, mode);
  struct stat facts {};
  if (descriptor_ >= 0 && ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode)) return;
  const int error = descriptor_ >= 0 ? EINVAL : errno;
  if (descriptor_ >= 0) system_.close(descriptor_);
  if (error != EINVAL && error != ENXIO) fail(error);
  throw UsageError(
      fmt::format("{} is not a regular file, which going on after an interruption needs: use -o - "
                  "and redirect it",
                  path_.string()));
}

void Journal::lock() {
  try {
    lock_ = std::make_unique<boost::interprocess::file_lock>(path_.c_str());
    if (lock_->try_lock() && has_its_name()) return;
  } catch (const boost::interprocess::interprocess_exception& error) {
    throw std::system_error(error.get_native_error(), std::generic_category());
  }
  throw UsageError(fmt::format("another process is writing {}: wait for it, or name another output",
                               path_.string()));
}

// False when another process has replaced the file since it was opened here.
bool Journal::has_its_name() const {
  return base::has_name(descriptor_, path_.c_str());
}

void Journal::check_file(Clock::time_point now) {
  require_own_output(descriptor_, path_, size_);
  last_check_ = now;
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
  // The process that wrote the lines may have been killed before they were on the disk. Most were,
  // so none is cut off where this fails: whoever opens the file again finds those that are there.
  durable_bytes_ = size_;
  sync();
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

// Reads through the open descriptor: closing another one would give up the lock.
std::string Journal::read_line(std::uint64_t offset, std::size_t bytes) const {
  std::string line(bytes, '\0');
  std::size_t read_bytes = 0;
  try {
    read_bytes = files::read_at(descriptor_, std::as_writable_bytes(std::span(line)), offset);
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), fmt::format("cannot read {}", path_.string()));
  }
  if (read_bytes != bytes) fail(EIO);
  return line;
}

void Journal::read(const UseLine& use) const {
  std::uint64_t offset = 0;
  for (const ResultFacts& facts : scan_.found) {
    use(facts, read_line(offset, facts.line_bytes));
    offset += facts.line_bytes;
  }
}

void Journal::replace(std::span<const std::size_t> kept) {
  std::vector<std::uint64_t> offsets;
  offsets.reserve(scan_.found.size());
  std::uint64_t offset = 0;
  for (const ResultFacts& facts : scan_.found) {
    offsets.push_back(offset);
    offset += facts.line_bytes;
  }
  check_file(Clock::now());
  files::DurableFile file(path_, {.named_by = files::NamedBy::user}, system_);
  std::string lines;
  for (const std::size_t index : kept) {
    lines += read_line(offsets.at(index), scan_.found[index].line_bytes);
    if (lines.size() >= rewrite_bytes) {
      file.write(lines);
      lines.clear();
    }
  }
  file.write(lines);
  file.commit();
}

const JournalScan& Journal::rescan() {
  try {
    scan_ = scan_journal(descriptor_);
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), fmt::format("cannot read {}", path_.string()));
  }
  if (scan_.whole_bytes != size_ || scan_.bytes != size_) {
    throw Error(ExitCode::io,
                fmt::format("{} was written to by another program while the job ran: after {} "
                            "results it has something else; it is left as it is",
                            path_.string(), scan_.found.size()));
  }
  return scan_;
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
  check_file(Clock::now());
}

void Journal::sync_if_due(Clock::time_point now) {
  const Clock::time_point next_look = now + (now - last_look_);
  last_look_ = now;
  if (dirty_since_ && next_look - *dirty_since_ >= sync_period) return sync();
  if (next_look - last_check_ >= sync_period) check_file(now);
}

}  // namespace sluice::batch
