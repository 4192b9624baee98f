// The rows of a job on their way through it: out as tasks, and back in as lines of results. What a
// command and a server do with a batch differs only in who runs the tasks (core/batch/job.h,
// core/batch/served_job.h).
//
// A bad row gets an error line, and so does a row that throws; only reading the input and keeping
// the results can end a job.
//
// Threads: used by one thread. A helper thread may make tasks ahead of their turn.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/row_results.h"
#include "core/batch/row_tasks.h"
#include "core/batch/task_preparer.h"
#include "core/rows/request.h"
#include "core/rows/task_maker.h"

namespace sluice::batch {

struct RowOptions {
  rows::TaskOptions task;
  std::string model_name;                             // for results of rows that name no model
  std::uint64_t row_bytes_max = rows::row_bytes_max;  // a longer row is an error
  // What the engine was planned for: the most positions of a row, and the most bytes that a row
  // holds while it runs (Task::held_bytes). A row that needs more is left out.
  std::uint64_t positions_planned = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t held_bytes_planned = std::numeric_limits<std::uint64_t>::max();
  // Called after each row that is refused, of which there may be millions in turn; what it throws,
  // next() throws, and goes on after that row when it is called again.
  std::function<void()> stop_check = {};
};

// The rows that were left out, and what they need.
struct LeftOut {
  std::uint64_t rows = 0;
  std::uint64_t positions = 0;   // of the longest
  std::uint64_t held_bytes = 0;  // the most bytes that one of them holds
};

class JobRows {
 public:
  // Takes a whole line. What it throws, next() and take() throw; the row is not done then.
  using Append = std::function<void(std::string_view line)>;

  // Gives the rows that are not in `done`, and adds them to it. The references must outlive this.
  JobRows(const tokenizer::Tokenizer& tokenizer, const Input& input, DoneRows& done,
          const RowOptions& options, Append append);

  // From now on a helper thread makes tasks ahead, on `cpus` (TaskPreparer). Call it first.
  void prepare_ahead(const PreparerLimits& limits, topology::CpuList cpus);

  // The next task to be run; nothing when each row was given out, was an error, or was left out.
  // A row that wants several results becomes several tasks, each with its own seed.
  std::optional<rows::Task> next();

  // The task has to run again: next() gives it first.
  void put_back(const rows::Task& task) { waiting_.push_front(task); }

  // Writes the line of the row, if this was its last task.
  void take(const rows::Task& task, const rows::Outcome& outcome);

  const DoneRows& done() const { return done_; }
  const LeftOut& left_out() const { return left_out_; }
  // Total time that next() has waited for unfinished tasks.
  double waited_s() const { return preparer_ ? preparer_->waited_s() : 0; }

 private:
  std::optional<std::uint64_t> next_row();
  std::optional<TaskPreparer::Prepared> next_made();
  bool is_left_out(const rows::Task& task);
  void append(const RowResult& result);

  const Input& input_;
  RowTasks maker_;
  RowResults results_;
  std::uint64_t positions_planned_;
  std::uint64_t held_bytes_planned_;
  std::function<void()> stop_check_;
  Append append_;
  DoneRows& done_;
  LeftOut left_out_;
  std::deque<rows::Task> waiting_;      // that come before any other row
  std::optional<rows::Task> repeated_;  // the task whose further results come next
  std::uint32_t next_choice_ = 0;       // of repeated_
  // Used by the helper thread: a copy from before the job, since done_ changes meanwhile.
  const DoneRows done_before_;
  std::uint64_t next_row_ = 1;
  std::optional<TaskPreparer> preparer_;  // nothing: tasks are made when it is their turn
};

}  // namespace sluice::batch
