#include "core/batch/job.h"

#include <algorithm>
#include <utility>

namespace sluice::batch {

// As many tasks as can begin in one step.
PreparerLimits preparer_limits(const serve::SchedulerOptions& scheduler) {
  return {.tasks_max = std::max<std::size_t>(scheduler.parallel, 2)};
}

Job::Job(engine::Engine& engine, const Input& input, DoneRows& done, const JobOptions& options,
         Append append)
    : input_(input),
      maker_(engine.tokenizer(), input, options.task),
      results_(input, engine.tokenizer(), options.model_name),
      positions_planned_(options.positions_planned),
      held_bytes_planned_(options.held_bytes_planned),
      append_(std::move(append)),
      done_(done),
      done_before_(done),
      preparer_(
          maker_, [this] { return next_row(); }, preparer_limits(options.scheduler),
          options.helper_cpus),
      scheduler_(
          engine, options.scheduler, [this](rows::Priority least) { return next_task(least); },
          [this](const rows::Task& task, const rows::Outcome& outcome) { take(task, outcome); }) {}

std::optional<std::uint64_t> Job::next_row() {
  const Shard& shard = done_before_.shard();
  while (next_row_ <= input_.rows()) {
    const std::uint64_t row = next_row_++;
    if (shard.has(row) && !done_before_.has(row)) return row;
  }
  return std::nullopt;
}

// Whether the row needs more than the engine was planned for.
bool Job::is_left_out(const rows::Task& task) {
  const std::uint64_t positions = task.prompt.size() + task.tokens_max;
  if (positions <= positions_planned_ && task.held_bytes <= held_bytes_planned_) return false;
  ++left_out_.rows;
  left_out_.positions = std::max(left_out_.positions, positions);
  left_out_.held_bytes = std::max(left_out_.held_bytes, task.held_bytes);
  return true;
}

// Rows that cannot be run get their error line here. A row that wants several results becomes
// several tasks, each with its own seed.
std::optional<rows::Task> Job::next_task(rows::Priority least) {
  if (least == rows::Priority::interactive) return std::nullopt;
  if (repeated_) {
    rows::Task task = rows::task_of_choice(*repeated_, next_choice_++);
    if (next_choice_ == task.choices) repeated_.reset();
    return task;
  }
  while (std::optional<TaskPreparer::Prepared> prepared = preparer_.next()) {
    const std::uint64_t row = prepared->row;
    if (auto* task = std::get_if<rows::Task>(&prepared->made)) {
      if (is_left_out(*task)) continue;
      if (task->choices > 1) {
        repeated_ = *task;
        next_choice_ = 1;
      }
      return std::move(*task);
    }
    append(row, results_.refused(row, std::get<rows::RefusedRow>(prepared->made)));
  }
  return std::nullopt;
}

void Job::take(const rows::Task& task, const rows::Outcome& outcome) {
  if (const auto result = results_.take(task, outcome)) append(task.row, *result);
}

void Job::append(std::uint64_t row, const RowResult& result) {
  append_(result.line);
  done_.add(row, result.is_error);
}

}  // namespace sluice::batch
