// Makes the tasks of the rows of an input.
//
// Threads: immutable after construction; any number of threads may use one.
#pragma once

#include <cstdint>
#include <variant>

#include "core/batch/input.h"
#include "core/rows/task_maker.h"

namespace sluice::batch {

class RowTasks {
 public:
  // `tokenizer` and `input` must outlive this. A row of more than `row_bytes_max` bytes is refused.
  RowTasks(const tokenizer::Tokenizer& tokenizer, const Input& input,
           const rows::TaskOptions& options, std::uint64_t row_bytes_max = rows::row_bytes_max)
      : input_(input), maker_(tokenizer, options), row_bytes_max_(row_bytes_max) {}

  // `row` is from 1. Throws std::system_error when the input cannot be read, and nothing because of
  // what the row holds.
  std::variant<rows::Task, rows::RefusedRow> make(std::uint64_t row) const;

  // The most memory that make() needs for any row of the input.
  std::uint64_t work_bytes() const { return maker_.work_bytes(input_.row_bytes()); }

 private:
  const Input& input_;
  rows::TaskMaker maker_;
  std::uint64_t row_bytes_max_;
};

}  // namespace sluice::batch
