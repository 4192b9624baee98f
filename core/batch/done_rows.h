// Which rows of a job have a result: a bit for each row of the input.
//
// Threads: used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/batch/job_state.h"
#include "core/batch/result.h"

namespace sluice::batch {

class DoneRows {
 public:
  // `found` are the results that exist already. Results of other shards, and of rows that the input
  // does not have, are ignored; a row that occurs twice counts once.
  DoneRows(std::uint64_t input_rows, const Shard& shard, std::span<const ResultFacts> found = {},
           ErrorExamples examples = {});

  // `row` is from 1 to the rows of the input.
  bool has(std::uint64_t row) const { return is_done_[row - 1]; }
  // `message` is that of an error.
  void add(const ResultFacts& facts, std::string_view message = {});

  const Shard& shard() const { return shard_; }
  std::uint64_t rows() const { return rows_; }  // of the shard
  std::uint64_t count() const { return count_; }
  // Among these:
  std::uint64_t errors() const { return errors_; }
  const std::array<std::uint64_t, error_codes.size()>& errors_by_code() const { return by_code_; }
  const ErrorExamples& examples() const { return examples_; }
  std::uint64_t cut() const { return cut_; }  // with an answer that max_tokens has ended
  bool is_complete() const { return count_ == rows_; }

 private:
  Shard shard_;
  std::uint64_t rows_;
  std::vector<bool> is_done_;  // by row - 1
  std::uint64_t count_ = 0;
  std::uint64_t errors_ = 0;
  std::array<std::uint64_t, error_codes.size()> by_code_{};
  ErrorExamples examples_;
  std::uint64_t cut_ = 0;
};

}  // namespace sluice::batch
