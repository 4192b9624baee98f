#include "core/batch/job_rows.h"

#include <algorithm>
#include <utility>

namespace sluice::batch {

JobRows::JobRows(const tokenizer::Tokenizer& tokenizer, const Input& input, DoneRows& done,
                 const RowOptions& options, Append append)
    : input_(input),
      maker_(tokenizer, input, options.task, options.row_bytes_max),
      results_(input, tokenizer, options.model_name),
      positions_planned_(options.positions_planned),
      held_bytes_planned_(options.held_bytes_planned),
      stop_check_(options.stop_check),
      append_(std::move(append)),
      done_(done),
      done_before_(done) {}

void JobRows::prepare_ahead(const PreparerLimits& limits, topology::CpuList cpus) {
  preparer_.emplace(
      maker_, [this] { return next_row(); }, limits, std::move(cpus));
}

std::optional<std::uint64_t> JobRows::next_row() {
  const Shard& shard = done_before_.shard();
  while (next_row_ <= input_.rows()) {
    const std::uint64_t row = next_row_++;
    if (shard.has(row) && !done_before_.has(row)) return row;
  }
  return std::nullopt;
}

std::optional<TaskPreparer::Prepared> JobRows::next_made() {
  if (preparer_) return preparer_->next();
  const std::optional<std::uint64_t> row = next_row();
  if (!row) return std::nullopt;
  return TaskPreparer::Prepared{*row, maker_.make(*row)};
}

// Whether the row needs more than the engine was planned for.
bool JobRows::is_left_out(const rows::Task& task) {
  const std::uint64_t positions = task.prompt.size() + task.tokens_max;
  if (positions <= positions_planned_ && task.held_bytes <= held_bytes_planned_) return false;
  ++left_out_.rows;
  left_out_.positions = std::max(left_out_.positions, positions);
  left_out_.held_bytes = std::max(left_out_.held_bytes, task.held_bytes);
  return true;
}

std::optional<rows::Task> JobRows::next() {
  if (!waiting_.empty()) {
    rows::Task task = std::move(waiting_.front());
    waiting_.pop_front();
    return task;
  }
  if (repeated_) {
    rows::Task task = rows::task_of_choice(*repeated_, next_choice_++);
    if (next_choice_ == task.choices) repeated_.reset();
    return task;
  }
  while (std::optional<TaskPreparer::Prepared> prepared = next_made()) {
    const std::uint64_t row = prepared->row;
    if (auto* task = std::get_if<rows::Task>(&prepared->made)) {
      if (is_left_out(*task)) continue;
      if (task->choices > 1) {
        repeated_ = *task;
        next_choice_ = 1;
      }
      return std::move(*task);
    }
    append(results_.refused(row, std::get<rows::RefusedRow>(prepared->made)));
    if (stop_check_) stop_check_();
  }
  return std::nullopt;
}

void JobRows::take(const rows::Task& task, const rows::Outcome& outcome) {
  if (const auto result = results_.take(task, outcome)) append(*result);
}

void JobRows::append(const RowResult& result) {
  append_(result.line);
  done_.add(result.facts, result.message);
}

}  // namespace sluice::batch
