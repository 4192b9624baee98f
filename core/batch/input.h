// The rows of an input file, by their place in it.
//
// A row is a line that is not blank; rows and lines are numbered from 1. The file is read twice:
// once to find the rows, to make the digest and to see which ids occur again, and then row by row
// as they are needed, so that memory grows by 16 bytes a row and by the longest row, not by the
// file. Standard input, and a file that is not a regular one (a pipe, `<(...)`), can be read only
// once, and is copied to an unnamed temporary file first.
//
// Threads: used by one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice::batch {

class Input {
 public:
  // Called now and then while the input is read, and several times a second while it is waited for.
  // What it throws ends the reading.
  using Check = std::function<void()>;

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
  };
  void open(const std::filesystem::path& path);
  bool is_regular_file() const;
  void replace_by_copy();
  void copy_to(int copy) const;
  void scan();
  void end_line(std::uint64_t begin, std::uint64_t end, bool is_blank, std::uint64_t line);
  void find_duplicates();
  [[noreturn]] void fail(int error) const;

  std::string name_;
  Check check_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t digest_ = 0;
  std::vector<Row> rows_;
  std::map<std::uint64_t, std::uint64_t> duplicates_;  // row -> the first of its id
};

}  // namespace sluice::batch
