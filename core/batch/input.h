// The rows of an input file, by number.
//
// A row is a line that is not blank; rows and lines are numbered from 1. The constructor reads the
// file once, from beginning to end, and makes an index: the place of each row, a digest of its id,
// and a digest of the whole file. After that, rows are read one by one when they are needed. So
// memory grows by 24 bytes a row (28 while ids are compared) and by the longest row, not by the
// file. Standard input, and any file that is not a regular one (a pipe, `<(...)`), can be read only
// once; it is copied to an unnamed temporary file first.
//
// Threads: immutable after construction; any number of threads may read.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/file_identity.h"
#include "base/mutex.h"

namespace sluice::batch {

class Input {
 public:
  // The progress of reading. It is reported now and then while the input is read, and several times
  // a second while waiting for input. What the callback throws ends the reading.
  struct Progress {
    std::uint64_t bytes = 0;        // read so far
    std::uint64_t total_bytes = 0;  // 0: not known
    std::uint64_t rows = 0;         // found in these bytes
  };
  using Check = std::function<void(const Progress&)>;

  // "-" is standard input. Throws std::system_error.
  explicit Input(const std::filesystem::path& path, const Check& check = {});
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::uint64_t rows() const { return rows_.size(); }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t row_bytes() const { return row_bytes_; }  // of the longest row, as read() gives it
  std::uint64_t digest() const { return digest_; }        // of all bytes

  // `row` is from 1 to rows().
  std::uint64_t line_number(std::uint64_t row) const;

  // The length of the row, as read() returns it.
  std::uint64_t row_bytes(std::uint64_t row) const { return rows_.at(row - 1).bytes; }

  // The line without its newline. A row longer than row_bytes_max is cut, but stays longer than
  // that. Throws std::system_error, also when the file has become shorter; Error when what was read
  // of it at first has changed. More may be appended to it.
  std::string read(std::uint64_t row) const;

  // The first row with the same id, if that is an earlier one.
  std::optional<std::uint64_t> first_of_same_id(std::uint64_t row) const;

 private:
  struct Row {
    std::uint64_t offset;
    std::uint32_t bytes;
    std::uint32_t line;
    std::uint64_t id;  // digest of its id; 0: the row has no id that can be read
  };
  void open(const std::filesystem::path& path);
  bool is_regular_file() const;
  base::FileIdentity current_identity() const;
  void require_unchanged() const;
  void replace_by_copy();
  void copy_to(int copy) const;
  void scan();
  void add_line(std::uint64_t begin, std::uint64_t bytes, std::uint64_t line,
                std::string_view content);
  void check() const;
  void find_duplicates();
  [[noreturn]] void fail(int error) const;

  std::string name_;
  Check check_;
  base::Descriptor file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t digest_ = 0;
  std::uint64_t total_bytes_ = 0;
  // Of the file when its contents were known last.
  mutable base::Mutex mutex_;
  mutable base::FileIdentity identity_ SLUICE_GUARDED_BY(mutex_);
  std::deque<Row> rows_;  // grows without copying
  // The rows that have the id of an earlier row, ascending, each with the first row of that id.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> duplicates_;
};

}  // namespace sluice::batch
