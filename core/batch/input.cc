#include "core/batch/input.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits>
#include <poll.h>
#include <stdlib.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/batch/digest.h"
#include "core/batch/request.h"
#include "core/error.h"

namespace sluice::batch {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr int wait_milliseconds = 200;

bool is_blank_byte(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\r';
}

std::size_t read_some(int descriptor, char* data, std::size_t size) {
  while (true) {
    const ssize_t n = ::read(descriptor, data, size);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) throw std::system_error(errno, std::generic_category());
  }
}

// Whether there is something to read, be it the end. Waits for a moment, as a signal that comes
// just before the waiting does not end it.
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
    : name_(path == "-" ? "standard input" : path.string()), check_(check ? check : [] {}) {
  open(path);
  try {
    if (path == "-" || !is_regular_file()) replace_by_copy();
    scan();
    find_duplicates();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

Input::~Input() {
  ::close(descriptor_);
}

void Input::fail(int error) const {
  throw std::system_error(error, std::generic_category(), fmt::format("cannot read {}", name_));
}

// Not blocking, so that a pipe that nobody writes to yet is waited for where signals are seen.
void Input::open(const std::filesystem::path& path) {
  descriptor_ = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                            : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(errno);
}

bool Input::is_regular_file() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail(errno);
  if (S_ISDIR(facts.st_mode)) fail(EISDIR);
  return S_ISREG(facts.st_mode);
}

void Input::replace_by_copy() {
  std::string name = (std::filesystem::temp_directory_path() / "sluice-input-XXXXXX").string();
  const int copy = ::mkostemp(name.data(), O_CLOEXEC);
  if (copy < 0) {
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("cannot copy {} to {}", name_, name));
  }
  ::unlink(name.c_str());
  try {
    copy_to(copy);
  } catch (const std::system_error& error) {
    ::close(copy);
    throw std::system_error(error.code(), fmt::format("cannot copy {} to {}", name_, name));
  } catch (...) {
    ::close(copy);
    throw;
  }
  ::close(std::exchange(descriptor_, copy));
  ::lseek(descriptor_, 0, SEEK_SET);
}

void Input::copy_to(int copy) const {
  std::string piece(piece_bytes, '\0');
  while (true) {
    check_();
    if (!wait_for_bytes(descriptor_)) continue;
    const ssize_t size = ::read(descriptor_, piece.data(), piece.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size < 0) throw std::system_error(errno, std::generic_category());
    if (size == 0) return;
    write_all(copy, std::string_view(piece).substr(0, static_cast<std::size_t>(size)));
  }
}

void Input::scan() {
  std::string piece(piece_bytes, '\0');
  Digest digest;
  std::uint64_t begin = 0;  // of the current line
  std::uint64_t line = 1;
  bool is_blank = true;
  while (true) {
    check_();
    std::size_t size = 0;
    try {
      size = read_some(descriptor_, piece.data(), piece.size());
    } catch (const std::system_error& error) {
      fail(error.code().value());
    }
    if (size == 0) break;
    digest.add(std::string_view(piece).substr(0, size));
    for (std::size_t i = 0; i < size; ++i) {
      if (piece[i] != '\n') {
        is_blank = is_blank && is_blank_byte(piece[i]);
        continue;
      }
      end_line(begin, bytes_ + i, is_blank, line++);
      begin = bytes_ + i + 1;
      is_blank = true;
    }
    bytes_ += size;
  }
  end_line(begin, bytes_, is_blank, line);  // the last one may lack its newline
  digest_ = digest.value();
}

void Input::end_line(std::uint64_t begin, std::uint64_t end, bool is_blank, std::uint64_t line) {
  if (is_blank) return;
  constexpr std::uint64_t lines_max = std::numeric_limits<std::uint32_t>::max();
  if (line > lines_max) {
    throw UsageError(fmt::format("{} has more than {} lines: split it", name_, lines_max));
  }
  const std::uint64_t kept = std::min<std::uint64_t>(end - begin, row_bytes_max + 1);
  row_bytes_ = std::max(row_bytes_, kept);
  rows_.push_back({begin, static_cast<std::uint32_t>(kept), static_cast<std::uint32_t>(line)});
}

// Rows are compared by the digests of their ids, and those that agree by the ids themselves.
void Input::find_duplicates() {
  const auto id_of = [this](std::uint64_t row) {
    return parse_row(read(row), row, {})
        .header.id.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::vector<std::pair<std::uint64_t, std::uint32_t>> seen;  // digest of the id, row
  for (std::uint64_t row = 1; row <= rows(); ++row) {
    check_();
    const std::string id = id_of(row);
    if (id != "null") seen.emplace_back(digest_of(id), static_cast<std::uint32_t>(row));
  }
  std::sort(seen.begin(), seen.end());
  for (std::size_t i = 1, first = 0; i < seen.size(); ++i) {
    if (seen[i].first != seen[first].first) first = i;
    if (i != first && id_of(seen[i].second) == id_of(seen[first].second)) {
      duplicates_.emplace(seen[i].second, seen[first].second);
    }
  }
}

std::uint64_t Input::line_number(std::uint64_t row) const {
  return rows_.at(row - 1).line;
}

std::string Input::read(std::uint64_t row) const {
  const Row& at = rows_.at(row - 1);
  std::string text(at.bytes, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(descriptor_, text.data() + done, text.size() - done,
                              static_cast<off_t>(at.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    if (n == 0) {
      throw std::system_error(std::make_error_code(std::errc::io_error),
                              fmt::format("{} became shorter while it was read", name_));
    }
    done += static_cast<std::size_t>(n);
  }
  return text;
}

std::optional<std::uint64_t> Input::first_of_same_id(std::uint64_t row) const {
  const auto at = duplicates_.find(row);
  return at == duplicates_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace sluice::batch
