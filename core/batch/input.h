// The rows of an input file, by their place in it.
//
// A row is a line that is not blank; rows and lines are numbered from 1. The file is read once from
// its beginning to its end, for an index: where each row is, a digest of its id, and a digest of
// the whole. Later rows are read one by one as they are needed. So memory grows by the 24 bytes
// that the index has for a row (28 while ids are compared) and by the longest row, not by the file.
// Standard input, and a file that is not a regular one (a pipe, `<(...)`), can be read only once,
// and is copied to an unnamed temporary file first.
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

namespace sluice::batch {

class Input {
 public:
  // Called now and then while the input is read, with how far that is, and several times a second
  // while it is waited for. What it throws ends the reading.
  struct Progress {
    std::uint64_t bytes = 0;        // that were looked through
    std::uint64_t total_bytes = 0;  // 0: not known
    std::uint64_t rows = 0;         // that were found in them
  };
  using Check = std::function<void(const Progress&)>;

  // "-" is standard input. Throws std::system_error.
  explicit Input(const std::filesystem::path& path, const Check& check = {});
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::uint64_t rows() const { return rows_.size(); }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t row_bytes() const { return row_bytes_; }  // of the longest row, as read() gives it
  std::uint64_t digest() const { return digest_; }        // of all bytes

  // `row` is from 1 to rows().
  std::uint64_t line_number(std::uint64_t row) const;

  // Its length, as read() gives it.
  std::uint64_t row_bytes(std::uint64_t row) const { return rows_.at(row - 1).bytes; }

  // The line without its newline, but of a row longer than row_bytes_max only so much that its
  // length is seen to be too much. Throws std::system_error, also when the file has become shorter.
  std::string read(std::uint64_t row) const;

  // The row before this one that has the same id, if there is one: the first.
  std::optional<std::uint64_t> first_of_same_id(std::uint64_t row) const;

 private:
  struct Row {
    std::uint64_t offset;
    std::uint32_t bytes;
    std::uint32_t line;
    std::uint64_t id;  // its digest; 0: the row has none that can be read
  };
  void open(const std::filesystem::path& path);
  bool is_regular_file() const;
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
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t digest_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::deque<Row> rows_;  // grows without a copy
  // Rows whose id another one has, by number, each with the first row of that id.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> duplicates_;
};

}  // namespace sluice::batch
