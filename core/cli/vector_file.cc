#include "core/cli/vector_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "core/batch/journal.h"
#include "core/batch/result.h"
#include "core/cli/interrupt.h"
#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/files/read_at.h"
#include "core/rows/answer_body.h"
#include "core/rows/row_json.h"

namespace sluice::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays hold little-endian floats");

constexpr std::size_t array_header_bytes = 128;

}  // namespace

std::string vector_line(std::uint64_t row, const RowVector& vector) {
  std::string line = fmt::format(R"({{"row":{})", row);
  if (!vector.id.empty()) line += ",\"id\":" + vector.id;
  if (!vector.problem.empty()) {
    return line + fmt::format(",\"error\":{{\"code\":{},\"message\":{}}}}}\n",
                              rows::json_text(vector.code), rows::json_text(vector.problem));
  }
  return line +
         fmt::format(R"(,"tokens":{},"embedding":{}}})", vector.tokens,
                     rows::numbers_text(vector.values)) +
         "\n";
}

VectorFile::VectorFile(const std::filesystem::path& path, const batch::JobState& state,
                       std::size_t numbers, bool restarts, files::SystemCalls& system)
    : system_(system), path_(path), numbers_(numbers), rows_(state.rows) {
  file_ = base::Descriptor(system_.open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) fail();
  struct stat found {};
  if (::fstat(file_.number(), &found) != 0) fail();
  if (!S_ISREG(found.st_mode)) {
    throw UsageError(
        fmt::format("{} is no regular file: name one with -o, or leave -o out", path_.string()));
  }
  lock();
  if (::fstat(file_.number(), &found) != 0) fail();  // another process may have written meanwhile
  if (restarts || found.st_size == 0) {
    begin(state);
    return;
  }
  const std::optional<batch::JobState> before = batch::read_state(path_);
  if (!before) {
    throw UsageError(fmt::format(
        "{} holds something, and there is no {} that says that sluice embed wrote it; give "
        "--restart to replace it, or name another output",
        path_.string(), batch::state_path(path_).string()));
  }
  if (const auto changed = batch::differences(*before, state); !changed.empty()) {
    throw UsageError(
        fmt::format("{} was begun with other settings: {}; give --restart to begin anew",
                    path_.string(), fmt::join(changed, "; ")));
  }
  bytes_ = static_cast<std::uint64_t>(found.st_size);
  files::forget_unwritten(file_.number(), system_);
  find_rows();
  sync();
}

// The lock lasts until the file is closed.
void VectorFile::lock() const {
  if (::flock(file_.number(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) fail();
  throw UsageError(fmt::format("another process is writing {}: wait for it, or name another output",
                               path_.string()));
}

void VectorFile::begin(const batch::JobState& state) {
  cut(0);
  sync();  // or old vectors might be found beside the new state
  batch::write_state(path_, state, system_);
  if (is_array()) write(array_header(rows_));
}

// The header of version 1.0 of the format, with the rows that there will be.
std::string VectorFile::array_header(std::uint64_t rows) const {
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
                                 rows, numbers_);
  text.resize(array_header_bytes - 11, ' ');
  using std::string_literals::operator""s;
  return "\x93NUMPY\x01\x00"s + static_cast<char>(array_header_bytes - 10) + '\0' + text + '\n';
}

// Counts the rows that are there as a whole, and cuts off what is left of others.
void VectorFile::find_rows() {
  return is_array() ? find_array_rows() : find_lines();
}

void VectorFile::find_array_rows() {
  const std::uint64_t row_bytes = numbers_ * sizeof(float);
  if (bytes_ < array_header_bytes) {
    cut(0);
    return write(array_header(rows_));
  }
  std::array<char, array_header_bytes> header;
  read(header, 0);
  if (std::string_view(header.data(), header.size()) != array_header(rows_)) {
    throw UsageError(fmt::format(
        "{} is no array of {} rows of {} numbers, as {} says; give --restart to begin anew",
        path_.string(), rows_, numbers_, batch::state_path(path_).string()));
  }
  rows_done_ = std::min(rows_, (bytes_ - array_header_bytes) / row_bytes);
  // Each block was synchronised before the next one.
  const std::uint64_t first = rows_done_ - std::min(rows_done_, block_rows);
  for (std::uint64_t row = first; row < rows_done_; ++row) {
    if (!is_row_written(row)) rows_done_ = row;
  }
  cut(array_header_bytes + rows_done_ * row_bytes);
  find_array_errors();
}

void VectorFile::find_array_errors() {
  for (std::uint64_t row = 0; row < rows_done_; ++row) {
    throw_if_interrupted();
    float first = 0;
    read({reinterpret_cast<char*>(&first), sizeof first},
         array_header_bytes + row * numbers_ * sizeof(float));
    if (std::isnan(first)) errors_found_.add(fmt::format("row {}: it is not a number", row + 1));
  }
}

// After a loss of power a file may be as long as it was, with zeros where nothing came to the disk.
// Sixteen numbers that are 0 in a row are none of a vector.
bool VectorFile::is_row_written(std::uint64_t row) const {
  constexpr std::size_t zeros_max = 16;
  std::vector<float> values(numbers_);
  read({reinterpret_cast<char*>(values.data()), values.size() * sizeof(float)},
       array_header_bytes + row * numbers_ * sizeof(float));
  const std::size_t zeros = std::min(zeros_max, numbers_);
  return std::search_n(values.begin(), values.end(), static_cast<std::ptrdiff_t>(zeros), 0.0F) ==
         values.end();
}

// A line begins with the number of its row. One that has zeros was never written as a whole, and
// what follows is computed anew.
void VectorFile::find_lines() {
  constexpr std::size_t line_bytes_max = std::size_t{64} << 20;
  std::string piece(std::size_t{1} << 16, '\0'), line;
  std::uint64_t whole = 0;
  const auto end_line = [&] {
    const bool is_too_long = line.size() > line_bytes_max;
    if (!is_too_long && line.find('\0') != line.npos) return false;
    const std::string begin = fmt::format(R"({{"row":{},)", rows_done_ + 1);
    if (is_too_long || rows_done_ == rows_ || !line.starts_with(begin) || !line.ends_with('}')) {
      throw UsageError(
          fmt::format("{}, line {}: not the vector of row {} of {}; give --restart to begin anew",
                      path_.string(), rows_done_ + 1, rows_done_ + 1, rows_));
    }
    ++rows_done_;
    whole += line.size() + 1;
    // Quotes within an id have a backslash before them.
    if (line.find(R"(,"error":{)") != line.npos) {
      errors_found_.add(errors_found_.count == 0 ? batch::error_message(line) : "");
    }
    line.clear();
    return true;
  };
  for (std::uint64_t at = 0; at < bytes_; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), bytes_ - at));
    read(piece, at);
    std::string_view rest = piece;
    for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      line += rest.substr(0, end);
      if (!end_line()) return cut(whole);
      rest.remove_prefix(end + 1);
    }
    line += rest;
    if (line.size() > line_bytes_max) end_line();  // it is none
  }
  cut(whole);
}

// An array has a row of "not a number" where there is no vector. Pieces are written as they come:
// as text, a block of vectors is several times as large.
void VectorFile::append(std::span<const RowVector> rows) {
  constexpr std::size_t held_max = std::size_t{1} << 20;
  const std::uint64_t durable_bytes = bytes_;
  std::string bytes;
  for (const RowVector& row : rows) {
    ++rows_done_;
    if (is_array()) {
      std::vector<float> values = row.values;
      values.resize(numbers_, std::numeric_limits<float>::quiet_NaN());
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    } else {
      bytes += vector_line(rows_done_, row);
    }
    if (bytes.size() < held_max) continue;
    write(bytes);
    bytes.clear();
  }
  write(bytes);
  try {
    sync();
  } catch (const std::system_error&) {
    cut(durable_bytes);  // the system may have lost the rest and still show it
    throw;
  }
  batch::require_own_output(file_.number(), path_, bytes_);
}

void VectorFile::sync() const {
  if (system_.fdatasync(file_.number()) != 0) fail();
}

void VectorFile::read(std::span<char> out, std::uint64_t at) const {
  try {
    if (files::read_at(file_.number(), std::as_writable_bytes(out), at) == out.size()) return;
  } catch (const std::system_error& e) {
    throw std::system_error(e.code(), fmt::format("cannot read {}", path_.string()));
  }
  throw UsageError(fmt::format("{} became shorter while it was read", path_.string()));
}

void VectorFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        system_.pwrite(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    bytes_ += static_cast<std::uint64_t>(n);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void VectorFile::cut(std::uint64_t bytes) {
  if (system_.ftruncate(file_.number(), static_cast<off_t>(bytes)) != 0) fail();
  bytes_ = bytes;
}

void VectorFile::fail() const {
  throw std::system_error(errno, std::generic_category(),
                          fmt::format("cannot write {}", path_.string()));
}

}  // namespace sluice::cli
