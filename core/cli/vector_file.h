// The output of `sluice embed`: a vector for each row of the input, in its order, as lines of JSON
// or as an array of NumPy (OUT.npy). Vectors are appended in blocks; what an interrupted run has
// written is found again when the same command goes on. OUT.state says what it was begun with.
//
// Used by one thread. All members throw std::system_error with the name of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "core/batch/job_state.h"
#include "core/files/system_calls.h"

namespace sluice::cli {

// What comes of a row: a vector, or why there is none.
struct RowVector {
  std::string id;  // as JSON, empty: the row has none
  std::uint64_t tokens = 0;
  std::vector<float> values;
  std::string code, problem;  // problem is empty where there are values
};

// The rows without a result, and why the first has none.
struct RowErrors {
  std::uint64_t count = 0;
  std::string first;

  void add(const std::string& problem) {
    if (count++ == 0) first = problem;
  }
};

class VectorFile {
 public:
  static constexpr std::uint64_t block_rows = 256;

  // Opens the output, finds the rows that it has, and makes them durable. `numbers`: of a vector.
  // Throws UsageError when the file was begun with other settings or another input, when something
  // else wrote it, and when another process is writing it; `restarts` deletes what it has.
  VectorFile(const std::filesystem::path& path, const batch::JobState& state, std::size_t numbers,
             bool restarts, files::SystemCalls& system = files::kernel());

  std::uint64_t rows_done() const { return rows_done_; }
  // Among the rows that were there when it was opened.
  const RowErrors& errors_found() const { return errors_found_; }

  // Appends the rows that follow, `block_rows` at most, and makes them durable. Throws Error where
  // the file was removed, replaced or written to meanwhile.
  void append(std::span<const RowVector> rows);

 private:
  bool is_array() const { return path_.extension() == ".npy"; }
  std::string array_header(std::uint64_t rows) const;
  void lock() const;
  void find_rows();
  void find_array_rows();
  void find_lines();
  bool is_row_written(std::uint64_t row) const;
  void find_array_errors();
  void begin(const batch::JobState& state);
  void read(std::span<char> out, std::uint64_t at) const;
  void write(std::string_view bytes);
  void sync() const;
  void cut(std::uint64_t bytes);
  [[noreturn]] void fail() const;

  files::SystemCalls& system_;
  std::filesystem::path path_;
  std::size_t numbers_;
  std::uint64_t rows_;  // of the input
  std::uint64_t rows_done_ = 0, bytes_ = 0;
  RowErrors errors_found_;
  base::Descriptor file_;
};

// One line of JSON, with its newline. `row` is from 1.
std::string vector_line(std::uint64_t row, const RowVector& vector);

}  // namespace sluice::cli
