// Makes the lines of results from the outcomes of tasks. A row that wants several results has
// several tasks, whose outcomes come in any order.
//
// Threads: used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch/input.h"
#include "core/batch/result.h"
#include "core/rows/task.h"
#include "core/rows/task_maker.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::batch {

struct RowResult {
  std::string line;  // with its newline
  ResultFacts facts;
  std::string message;  // of an error
};

class RowResults {
 public:
  // `model_name` is for results of rows that name no model. The references must outlive this.
  RowResults(const Input& input, const tokenizer::Tokenizer& tokenizer, std::string model_name);

  // Takes the outcome of one task. Returns the result of its row once all of them are there. A row
  // whose result cannot be written has an error for a result.
  std::optional<RowResult> take(const rows::Task& task, const rows::Outcome& outcome);

  RowResult refused(std::uint64_t row, const rows::RefusedRow& reason) const;

 private:
  // A row that wants several results, while some of them are done and others are not.
  struct Choices {
    std::vector<rows::Completion> completions;
    std::string problem;  // of the first result that has one, in the order of choices
    std::uint32_t problem_choice = 0;
    std::uint32_t missing = 0;
  };

  rows::Completion written(const rows::Task& task, rows::Completion completion) const;
  RowResult result(const rows::Task& task, std::span<const rows::Completion> completions,
                   const std::string& problem) const;
  RowResult error(std::uint64_t row, const rows::RowHeader& header, std::string_view code,
                  std::string_view reason) const;

  const Input& input_;
  const tokenizer::Tokenizer& tokenizer_;
  std::string model_name_;
  std::map<std::uint64_t, Choices> choices_;  // by row
};

}  // namespace sluice::batch
