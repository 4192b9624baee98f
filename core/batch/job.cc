#include "core/batch/job.h"

#include <utility>

namespace sluice::batch {

Job::Job(engine::Engine& engine, const Input& input, const Shard& shard,
         const std::vector<ResultFacts>& done, const JobOptions& options, Append append)
    : input_(input),
      maker_(engine.tokenizer(), input, options.task),
      shard_(shard),
      model_name_(options.model_name),
      append_(std::move(append)),
      is_done_(input.rows(), false),
      scheduler_(
          engine, options.scheduler, [this] { return next_task(); },
          [this](const Task& task, const Outcome& outcome) { complete(task, outcome); }) {
  progress_.rows = shard.size(input.rows());
  for (const ResultFacts& facts : done) {
    if (facts.row > input.rows() || !shard.has(facts.row) || is_done_[facts.row - 1]) continue;
    is_done_[facts.row - 1] = true;
    ++progress_.rows_done;
    progress_.errors += facts.is_error ? 1 : 0;
  }
  progress_.rows_done_before = progress_.rows_done;
}

// Rows that cannot be run get their result on the way.
std::optional<Task> Job::next_task() {
  while (next_row_ <= input_.rows()) {
    const std::uint64_t row = next_row_++;
    if (!shard_.has(row) || is_done_[row - 1]) continue;
    std::variant<Task, RefusedRow> made = maker_.make(row);
    if (auto* task = std::get_if<Task>(&made)) return std::move(*task);
    const RefusedRow& refused = std::get<RefusedRow>(made);
    append_error(row, refused.header, refused.code, refused.reason);
  }
  return std::nullopt;
}

void Job::complete(const Task& task, const Outcome& outcome) {
  if (!outcome.problem.empty()) {
    append_error(task.row, task.header, "cannot_run", outcome.problem);
    return;
  }
  append_(result_line(task.row, task.header, model_name_, outcome.completion));
  ++progress_.rows_done;
}

void Job::append_error(std::uint64_t row, const RowHeader& header, std::string_view code,
                       std::string_view reason) {
  append_(error_line(row, header, {code, input_.line_number(row), reason}));
  ++progress_.rows_done;
  ++progress_.errors;
}

}  // namespace sluice::batch
