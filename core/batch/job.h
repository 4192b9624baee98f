// A batch from its input to its results: reads the rows that are still to be done, makes tasks of
// them, runs these through the scheduler and gives out one line for every row, in the order in
// which they finish. A row that is bad in any way gets an error line; only the engine and the
// reading of the input can end the job.
//
// Threads: used by one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch/input.h"
#include "core/batch/job_state.h"
#include "core/batch/request.h"
#include "core/batch/scheduler.h"
#include "core/batch/task_maker.h"
#include "core/engine/session.h"

namespace sluice::batch {

struct JobOptions {
  TaskOptions task;
  SchedulerOptions scheduler;
  std::string model_name;  // in results of rows that name no model
};

struct JobProgress {
  std::uint64_t rows = 0;       // of this job's shard
  std::uint64_t rows_done = 0;  // with those that were done before
  std::uint64_t errors = 0;     // among them
  std::uint64_t rows_done_before = 0;
};

class Job {
 public:
  using Append = std::function<void(std::string_view line)>;

  // `done`: rows that have a result already. `engine` and `input` outlive the job.
  Job(engine::Engine& engine, const Input& input, const Shard& shard,
      const std::vector<ResultFacts>& done, const JobOptions& options, Append append);

  // One step of the scheduler; false when every row has its result.
  bool step() { return scheduler_.step(); }

  // Lets the rows that generate go on, and admits no other.
  void wind_down() { scheduler_.wind_down(); }

  bool is_complete() const { return progress_.rows_done == progress_.rows; }
  std::size_t running() const { return scheduler_.running(); }
  const JobProgress& progress() const { return progress_; }
  const SchedulerCounts& counts() const { return scheduler_.counts(); }

 private:
  // A row that wants several results, between its first one and its last.
  struct Choices {
    std::vector<Completion> completions;
    std::string problem;  // of the first result, in their order, that has one
    std::uint32_t problem_choice = 0;
    std::uint32_t missing = 0;
  };

  std::optional<Task> next_task();
  void take(const Task& task, const Outcome& outcome);
  void append_result(const Task& task, std::span<const Completion> completions);
  void append_error(std::uint64_t row, const RowHeader& header, std::string_view code,
                    std::string_view reason);

  const Input& input_;
  TaskMaker maker_;
  Shard shard_;
  std::string model_name_;
  Append append_;
  std::vector<bool> is_done_;  // by row - 1
  std::uint64_t next_row_ = 1;
  JobProgress progress_;
  const tokenizer::Tokenizer& tokenizer_;
  std::optional<Task> repeated_;              // whose further results are to be begun
  std::map<std::uint64_t, Choices> choices_;  // by row
  Scheduler scheduler_;
};

}  // namespace sluice::batch
