// A batch of the command line, from its input to its results: the scheduler runs the tasks of its
// rows, and each row gets one line, in the order in which they finish.
//
// A helper thread makes tasks ahead of their turn (core/batch/task_preparer.h).
//
// The engine is planned before all rows are known. A row that needs more than was planned is left
// out. When the job has done all other rows, the caller runs the rest with another engine.
//
// Threads: used by one thread.
#pragma once

#include "core/batch/job_rows.h"
#include "core/engine/engine.h"
#include "core/serve/scheduler.h"
#include "topology/machine.h"

namespace sluice::batch {

struct JobOptions : RowOptions {
  serve::SchedulerOptions scheduler = {};
  topology::CpuList helper_cpus = {};  // of the helper thread; empty: those of the calling thread
};

// The limits of the queue of prepared tasks, for the scheduler's number of sequences.
PreparerLimits preparer_limits(const serve::SchedulerOptions& scheduler);

class Job {
 public:
  // Runs the rows that are not in `done`, and adds them to it. `engine`, `input` and `done` must
  // outlive the job.
  Job(engine::Engine& engine, const Input& input, DoneRows& done, const JobOptions& options,
      JobRows::Append append);

  // Runs one step of the scheduler. Returns false when every row has its result or was left out.
  bool step() { return scheduler_.step(); }

  // Lets the rows that generate continue, and admits no more rows.
  void wind_down() { scheduler_.wind_down(); }

  const LeftOut& left_out() const { return rows_.left_out(); }
  double waited_s() const { return rows_.waited_s(); }  // waiting for unfinished tasks
  std::size_t running() const { return scheduler_.running(); }
  const DoneRows& done() const { return rows_.done(); }
  const serve::SchedulerCounts& counts() const { return scheduler_.counts(); }

 private:
  JobRows rows_;
  serve::Scheduler scheduler_;
};

}  // namespace sluice::batch
