// A batch from its input to its results. It reads the rows that are still to be done, makes tasks
// of them, runs these with the scheduler, and writes one line for every row, in the order in which
// they finish. A bad row gets an error line; only a failure of the engine or of reading the input
// ends the job.
//
// A helper thread makes tasks ahead of their turn (core/batch/task_preparer.h).
//
// The engine is planned before all rows are known. A row that needs more than was planned is left
// out. When the job has done all other rows, the caller runs the rest with another engine.
//
// Threads: used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/row_results.h"
#include "core/batch/row_tasks.h"
#include "core/batch/task_preparer.h"
#include "core/engine/engine.h"
#include "core/rows/request.h"
#include "core/rows/task_maker.h"
#include "core/serve/scheduler.h"
#include "topology/machine.h"

namespace sluice::batch {

struct JobOptions {
  rows::TaskOptions task;
  serve::SchedulerOptions scheduler;
  std::string model_name;  // for results of rows that name no model
  // What the engine was planned for: the most positions of a row, and the most bytes that a row
  // holds while it runs (Task::held_bytes).
  std::uint64_t positions_planned = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t held_bytes_planned = std::numeric_limits<std::uint64_t>::max();
  topology::CpuList helper_cpus = {};  // of the helper thread; empty: those of the calling thread
};

// The rows that were left out, and what they need.
struct LeftOut {
  std::uint64_t rows = 0;
  std::uint64_t positions = 0;   // of the longest
  std::uint64_t held_bytes = 0;  // the most bytes that one of them holds
};

// The limits of the queue of prepared tasks, for the scheduler's number of sequences.
PreparerLimits preparer_limits(const serve::SchedulerOptions& scheduler);

class Job {
 public:
  using Append = std::function<void(std::string_view line)>;

  // Runs the rows that are not in `done`, and adds them to it. `engine`, `input` and `done` must
  // outlive the job.
  Job(engine::Engine& engine, const Input& input, DoneRows& done, const JobOptions& options,
      Append append);

  // Runs one step of the scheduler. Returns false when every row has its result or was left out.
  bool step() { return scheduler_.step(); }

  // Lets the rows that generate continue, and admits no more rows.
  void wind_down() { scheduler_.wind_down(); }

  const LeftOut& left_out() const { return left_out_; }
  double waited_s() const { return preparer_.waited_s(); }  // waiting for unfinished tasks
  std::size_t running() const { return scheduler_.running(); }
  const DoneRows& done() const { return done_; }
  const serve::SchedulerCounts& counts() const { return scheduler_.counts(); }

 private:
  std::optional<std::uint64_t> next_row();
  std::optional<rows::Task> next_task(rows::Priority least);
  bool is_left_out(const rows::Task& task);
  void take(const rows::Task& task, const rows::Outcome& outcome);
  void append(std::uint64_t row, const RowResult& result);

  const Input& input_;
  RowTasks maker_;
  RowResults results_;
  std::uint64_t positions_planned_;
  std::uint64_t held_bytes_planned_;
  Append append_;
  DoneRows& done_;
  LeftOut left_out_;
  std::optional<rows::Task> repeated_;  // the task whose further results come next
  std::uint32_t next_choice_ = 0;       // of repeated_
  // Used by the helper thread: a copy from before the job, since done_ changes meanwhile.
  const DoneRows done_before_;
  std::uint64_t next_row_ = 1;
  TaskPreparer preparer_;
  serve::Scheduler scheduler_;
};

}  // namespace sluice::batch
