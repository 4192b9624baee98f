// A batch from its input to its results: reads the rows that are still to be done, makes tasks of
// them, runs these through the scheduler and gives out one line for every row, in the order in
// which they finish. A row that is bad in any way gets an error line; only the engine and the
// reading of the input can end the job.
//
// Tasks are made ahead of their turn by a helper thread (core/batch/task_preparer.h).
//
// An engine is planned before all rows are known. A row that needs more than it was planned for is
// left out: the caller goes on with another engine when the job has done all others.
//
// Threads: used by one.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/request.h"
#include "core/batch/scheduler.h"
#include "core/batch/task_maker.h"
#include "core/batch/task_preparer.h"
#include "core/engine/engine.h"
#include "topology/machine.h"

namespace sluice::batch {

struct JobOptions {
  TaskOptions task;
  SchedulerOptions scheduler;
  std::string model_name;  // in results of rows that name no model
  // What the engine was planned for: the most positions of a row, and the most bytes that one holds
  // while it runs (Task::held_bytes).
  std::uint64_t positions_planned = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t held_bytes_planned = std::numeric_limits<std::uint64_t>::max();
  topology::CpuList helper_cpus = {};  // of the helper thread; empty: those of the caller
};

// Rows that were left out, and what they need.
struct LeftOut {
  std::uint64_t rows = 0;
  std::uint64_t positions = 0;   // of the longest
  std::uint64_t held_bytes = 0;  // the most that one holds
};

// The queue of tasks that are made ahead, where so many sequences run together.
PreparerLimits preparer_limits(const SchedulerOptions& scheduler);

class Job {
 public:
  using Append = std::function<void(std::string_view line)>;

  // Runs the rows that are not in `done`, and adds them to it. `engine`, `input` and `done` outlive
  // the job.
  Job(engine::Engine& engine, const Input& input, DoneRows& done, const JobOptions& options,
      Append append);

  // One step of the scheduler; false when every row has its result, but for those left out.
  bool step() { return scheduler_.step(); }

  // Lets the rows that generate go on, and admits no other.
  void wind_down() { scheduler_.wind_down(); }

  const LeftOut& left_out() const { return left_out_; }
  double waited_s() const { return preparer_.waited_s(); }  // for rows that were still being made
  std::size_t running() const { return scheduler_.running(); }
  const DoneRows& done() const { return done_; }
  const SchedulerCounts& counts() const { return scheduler_.counts(); }

 private:
  // A row that wants several results, between its first one and its last.
  struct Choices {
    std::vector<Completion> completions;
    std::string problem;  // of the first result, in their order, that has one
    std::uint32_t problem_choice = 0;
    std::uint32_t missing = 0;
  };

  std::optional<std::uint64_t> next_row();
  std::optional<Task> next_task();
  bool is_left_out(const Task& task);
  void take(const Task& task, const Outcome& outcome);
  void append_result(const Task& task, std::span<const Completion> completions);
  void append_error(std::uint64_t row, const RowHeader& header, std::string_view code,
                    std::string_view reason);

  const Input& input_;
  TaskMaker maker_;
  std::string model_name_;
  std::uint64_t positions_planned_;
  std::uint64_t held_bytes_planned_;
  Append append_;
  DoneRows& done_;
  LeftOut left_out_;
  const tokenizer::Tokenizer& tokenizer_;
  std::optional<Task> repeated_;              // whose further results are to be begun
  std::map<std::uint64_t, Choices> choices_;  // by row
  // Of the helper thread: as it was before the job, since done_ changes meanwhile.
  const DoneRows done_before_;
  std::uint64_t next_row_ = 1;
  TaskPreparer preparer_;
  Scheduler scheduler_;
};

}  // namespace sluice::batch
