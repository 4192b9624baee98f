#include "core/batch/input.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits>
#include <poll.h>
#include <span>
#include <stdlib.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/batch/row_id.h"
#include "core/error.h"
#include "core/files/checksum.h"
#include "core/files/read_at.h"
#include "core/files/temporary_folder.h"
#include "core/rows/request.h"

namespace sluice::batch {
namespace {

constexpr std::size_t input_piece_bytes = std::size_t{1} << 20;
constexpr int wait_milliseconds = 200;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::size_t read_some(int descriptor, char* data, std::size_t size) {
  while (true) {
    const ssize_t n = ::read(descriptor, data, size);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) throw std::system_error(errno, std::generic_category());
  }
}

// Whether there is something to read, which may be the end. Waits only briefly, because a signal
// that arrives just before the wait would not end it.
bool wait_for_bytes(int descriptor) {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&waiting, 1, wait_milliseconds);
  if (ready < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category());
  return ready > 0;
}

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category());
    }
  }
}

}  // namespace

Input::Input(const std::filesystem::path& path, const Check& check)
    : name_(path == "-" ? "standard input" : path.string()), check_(check) {
  open(path);
  if (path == "-" || !is_regular_file()) replace_by_copy();
  identity_ = current_identity();
  scan();
  find_duplicates();
}

void Input::check() const {
  if (check_) check_({bytes_, total_bytes_, rows_.size()});
}

void Input::fail(int error) const {
  throw std::system_error(error, std::generic_category(), fmt::format("cannot read {}", name_));
}

// Opened non-blocking: a pipe that nobody writes to yet is waited for where signals are noticed.
void Input::open(const std::filesystem::path& path) {
  file_ = base::Descriptor(path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                       : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_.is_open()) fail(errno);
}

bool Input::is_regular_file() const {
  struct stat facts {};
  if (::fstat(file_.number(), &facts) != 0) fail(errno);
  if (S_ISDIR(facts.st_mode)) fail(EISDIR);
  return S_ISREG(facts.st_mode);
}

base::FileIdentity Input::current_identity() const {
  struct stat facts {};
  if (::fstat(file_.number(), &facts) != 0) fail(errno);
  return base::FileIdentity::of(facts);
}

// Where the file was written to, what the rows were found in is read once more.
void Input::require_unchanged() const {
  const base::MutexLock lock(mutex_);
  const base::FileIdentity now = current_identity();
  if (now == identity_) return;
  files::Checksum digest;
  std::vector<std::byte> piece(input_piece_bytes);
  std::uint64_t at = 0;
  try {
    while (at < bytes_) {
      const std::size_t wanted = std::min<std::uint64_t>(piece.size(), bytes_ - at);
      const std::span<std::byte> part = std::span(piece).first(wanted);
      if (files::read_at(file_.number(), part, at) != wanted) break;
      digest.add(part);
      at += wanted;
    }
  } catch (const std::system_error& error) {
    fail(error.code().value());
  }
  if (at != bytes_ || digest.value() != digest_) {
    throw Error(
        ExitCode::io,
        fmt::format("{} was changed while its rows were read: the results so far are of the "
                    "rows that it had; put them back, or begin anew",
                    name_));
  }
  identity_ = now;
}

void Input::replace_by_copy() {
  std::string name = (files::temporary_folder() / "sluice-input-XXXXXX").string();
  base::Descriptor copy(::mkostemp(name.data(), O_CLOEXEC));
  if (!copy.is_open()) {
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("cannot copy {} to {}", name_, name));
  }
  ::unlink(name.c_str());
  try {
    copy_to(copy.number());
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), fmt::format("cannot copy {} to {}", name_, name));
  }
  file_ = std::move(copy);
  ::lseek(file_.number(), 0, SEEK_SET);
}

void Input::copy_to(int copy) const {
  std::string piece(input_piece_bytes, '\0');
  while (true) {
    check();
    if (!wait_for_bytes(file_.number())) continue;
    const ssize_t size = ::read(file_.number(), piece.data(), piece.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size < 0) throw std::system_error(errno, std::generic_category());
    if (size == 0) return;
    write_all(copy, std::string_view(piece).substr(0, static_cast<std::size_t>(size)));
  }
}

// A line is examined in place, in the piece that was read. Only a line that spans pieces is copied
// together, without blanks at its beginning and no longer than a row may be.
void Input::scan() {
  struct stat facts {};
  const bool is_known = ::fstat(file_.number(), &facts) == 0;
  if (is_known) total_bytes_ = static_cast<std::uint64_t>(facts.st_size);
  std::string piece(input_piece_bytes, '\0');
  std::string carried;  // the beginning of the current line, from earlier pieces
  files::Checksum digest;
  std::uint64_t begin = 0;  // of the current line
  std::uint64_t line = 1;
  const auto carry = [&](std::string_view text) {
    if (is_blank(carried)) carried.clear();
    carried += text.substr(0, rows::row_bytes_max + 1 - carried.size());
  };
  while (true) {
    check();
    std::size_t size = 0;
    try {
      size = read_some(file_.number(), piece.data(), piece.size());
    } catch (const std::system_error& error) {
      fail(error.code().value());
    }
    if (size == 0) break;
    std::string_view rest = std::string_view(piece).substr(0, size);
    digest.add(rest);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      const std::uint64_t position = bytes_ + size - rest.size();
      std::string_view content = rest.substr(0, end);
      if (!carried.empty()) {
        carry(content);
        content = carried;
      }
      add_line(begin, position + end - begin, line++, content);
      begin = position + end + 1;
      carried.clear();
      rest.remove_prefix(end + 1);
    }
    carry(rest);
    bytes_ += size;
  }
  add_line(begin, bytes_ - begin, line, carried);  // the last one may lack its newline
  digest_ = digest.value();
}

// `content` is the line, perhaps without blanks at its beginning. Of a line that is too long it is
// a part.
void Input::add_line(std::uint64_t begin, std::uint64_t bytes, std::uint64_t line,
                     std::string_view content) {
  if (is_blank(content)) return;
  constexpr std::uint64_t lines_max = std::numeric_limits<std::uint32_t>::max();
  if (line > lines_max) {
    throw UsageError(fmt::format("{} has more than {} lines: split it", name_, lines_max));
  }
  const std::uint64_t kept = std::min<std::uint64_t>(bytes, rows::row_bytes_max + 1);
  row_bytes_ = std::max(row_bytes_, kept);
  std::uint64_t id_digest = 0;
  if (bytes <= rows::row_bytes_max) {
    const std::optional<std::string> id = read_row_id(content);
    if (id) id_digest = std::max<std::uint64_t>(files::checksum_of(*id), 1);
  }
  rows_.push_back(
      {begin, static_cast<std::uint32_t>(kept), static_cast<std::uint32_t>(line), id_digest});
}

// Compares the digests of ids, and where they are equal the ids themselves.
void Input::find_duplicates() {
  std::vector<std::uint32_t> order;
  order.reserve(rows_.size());
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].id != 0) order.push_back(i);
  }
  check();
  std::ranges::sort(order, {}, [this](std::uint32_t i) { return std::pair(rows_[i].id, i); });
  std::optional<std::string> first_id;  // of order[first]; read when needed
  for (std::size_t i = 1, first = 0; i < order.size(); ++i) {
    if (i % 65536 == 0) check();
    if (rows_[order[i]].id != rows_[order[first]].id) {
      first = i;
      first_id.reset();
      continue;
    }
    if (!first_id) first_id = read_row_id(read(order[first] + 1));
    if (read_row_id(read(order[i] + 1)) != first_id) continue;
    duplicates_.emplace_back(order[i] + 1, order[first] + 1);
  }
  std::ranges::sort(duplicates_);
}

std::uint64_t Input::line_number(std::uint64_t row) const {
  return rows_.at(row - 1).line;
}

std::string Input::read(std::uint64_t row) const {
  require_unchanged();
  const Row& at = rows_.at(row - 1);
  std::string text(at.bytes, '\0');
  std::size_t read_bytes = 0;
  try {
    read_bytes = files::read_at(file_.number(), std::as_writable_bytes(std::span(text)), at.offset);
  } catch (const std::system_error& error) {
    fail(error.code().value());
  }
  if (read_bytes == text.size()) return text;
  throw std::system_error(std::make_error_code(std::errc::io_error),
                          fmt::format("{} became shorter while it was read", name_));
}

std::optional<std::uint64_t> Input::first_of_same_id(std::uint64_t row) const {
  const auto at = std::ranges::lower_bound(duplicates_, row, {},
                                           &std::pair<std::uint32_t, std::uint32_t>::first);
  if (at == duplicates_.end() || at->first != row) return std::nullopt;
  return at->second;
}

}  // namespace sluice::batch
