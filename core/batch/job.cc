#include "core/batch/job.h"

#include <fmt/format.h>
#include <utility>

#include "core/batch/digest.h"

namespace sluice::batch {

Job::Job(engine::Engine& engine, const Input& input, const Shard& shard,
         const std::vector<ResultFacts>& done, const JobOptions& options, Append append)
    : input_(input),
      maker_(engine.tokenizer(), input, options.task),
      shard_(shard),
      model_name_(options.model_name),
      append_(std::move(append)),
      is_done_(input.rows(), false),
      tokenizer_(engine.tokenizer()),
      scheduler_(
          engine, options.scheduler, [this] { return next_task(); },
          [this](const Task& task, const Outcome& outcome) { take(task, outcome); }) {
  progress_.rows = shard.size(input.rows());
  for (const ResultFacts& facts : done) {
    if (facts.row > input.rows() || !shard.has(facts.row) || is_done_[facts.row - 1]) continue;
    is_done_[facts.row - 1] = true;
    ++progress_.rows_done;
    progress_.errors += facts.is_error ? 1 : 0;
  }
  progress_.rows_done_before = progress_.rows_done;
}

// Rows that cannot be run get their result on the way. A row that wants several results becomes
// several tasks, each with a seed of its own.
std::optional<Task> Job::next_task() {
  if (repeated_) {
    Task task = *repeated_;
    ++repeated_->choice;
    task.sampler.seed ^= digest_of(std::to_string(task.choice));
    if (repeated_->choice == task.choices) repeated_.reset();
    return task;
  }
  while (next_row_ <= input_.rows()) {
    const std::uint64_t row = next_row_++;
    if (!shard_.has(row) || is_done_[row - 1]) continue;
    std::variant<Task, RefusedRow> made = maker_.make(row);
    if (auto* task = std::get_if<Task>(&made)) {
      if (task->choices > 1) {
        repeated_ = *task;
        repeated_->choice = 1;
        choices_[row] = {std::vector<Completion>(task->choices), "", 0, task->choices};
      }
      return std::move(*task);
    }
    const RefusedRow& refused = std::get<RefusedRow>(made);
    append_error(row, refused.header, refused.code, refused.reason);
  }
  return std::nullopt;
}

void Job::take(const Task& task, const Outcome& outcome) {
  Completion completion = outcome.completion;
  if (task.top_logprobs && outcome.problem.empty()) {
    completion.logprobs_text =
        logprobs_text(task.header.form, completion, *task.top_logprobs, tokenizer_);
    completion.logprobs = {};
  }
  if (task.choices == 1) {
    if (outcome.problem.empty()) {
      append_result(task, {&completion, 1});
    } else {
      append_error(task.row, task.header, "cannot_run", outcome.problem);
    }
    return;
  }
  Choices& choices = choices_.at(task.row);
  const bool is_first_problem = choices.problem.empty() || task.choice < choices.problem_choice;
  if (!outcome.problem.empty() && is_first_problem) {
    choices.problem = outcome.problem;
    choices.problem_choice = task.choice;
  }
  choices.completions[task.choice] = std::move(completion);
  if (--choices.missing != 0) return;
  if (choices.problem.empty()) {
    append_result(task, choices.completions);
  } else {
    append_error(task.row, task.header, "cannot_run", choices.problem);
  }
  choices_.erase(task.row);
}

void Job::append_result(const Task& task, std::span<const Completion> completions) {
  const std::string line = result_line(task.row, task.header, model_name_, completions);
  if (line.size() > result_bytes_max) {
    append_error(
        task.row, task.header, "cannot_run",
        fmt::format("the result is longer than {} bytes: lower max_tokens", result_bytes_max));
    return;
  }
  append_(line);
  ++progress_.rows_done;
}

void Job::append_error(std::uint64_t row, const RowHeader& header, std::string_view code,
                       std::string_view reason) {
  append_(error_line(row, header, {code, input_.line_number(row), reason}));
  ++progress_.rows_done;
  ++progress_.errors;
}

}  // namespace sluice::batch
