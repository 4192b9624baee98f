// Makes the tasks of rows ahead of their turn, on a thread of its own: rows are parsed and
// tokenised while the engine computes, so that a step does not wait for them.
//
// The tasks wait in a bounded queue. It has a limit of tasks and a limit of bytes, but always
// admits one task.
//
// Threads: the members are called by one thread. The helper thread uses the maker.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <variant>

#include "base/mutex.h"
#include "base/thread.h"
#include "core/batch/row_tasks.h"
#include "core/rows/task_maker.h"
#include "topology/machine.h"

namespace sluice::batch {

struct PreparerLimits {
  std::size_t tasks_max = 1;  // in the queue; at least 1
  std::uint64_t bytes_max = std::uint64_t{1} << 20;
};

class TaskPreparer {
 public:
  struct Prepared {
    std::uint64_t row = 0;
    std::variant<rows::Task, rows::RefusedRow> made;
  };
  // Returns the next row; nothing when there are no more. Called by the helper thread.
  using NextRow = std::function<std::optional<std::uint64_t>()>;

  // `maker` must outlive the preparer. The helper thread runs on `cpus`; if that is empty, on the
  // CPUs of the calling thread.
  TaskPreparer(const RowTasks& maker, NextRow next_row, const PreparerLimits& limits,
               topology::CpuList cpus = {});
  ~TaskPreparer();  // waits for the row that is being made
  TaskPreparer(const TaskPreparer&) = delete;
  TaskPreparer& operator=(const TaskPreparer&) = delete;

  // Returns the rows in the order of `next_row`; nothing after the last. Waits while the next row
  // is being made. Throws what making it has thrown.
  std::optional<Prepared> next();

  double waited_s() const { return waited_s_; }  // total time that next() has waited

 private:
  void work(const topology::CpuList& cpus);
  bool is_full() const SLUICE_REQUIRES(mutex_);

  const RowTasks& maker_;
  NextRow next_row_;
  PreparerLimits limits_;
  double waited_s_ = 0;

  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<Prepared> queue_ SLUICE_GUARDED_BY(mutex_);
  std::uint64_t queue_bytes_ SLUICE_GUARDED_BY(mutex_) = 0;
  bool is_over_ SLUICE_GUARDED_BY(mutex_) = false;      // no more rows come
  bool is_unwanted_ SLUICE_GUARDED_BY(mutex_) = false;  // the preparer is being destroyed
  std::exception_ptr failure_ SLUICE_GUARDED_BY(mutex_);

  base::Thread thread_;
};

// The most bytes that wait in the queue when no row has more than `positions` positions.
std::uint64_t prepared_bytes(const PreparerLimits& limits, std::uint64_t positions);

}  // namespace sluice::batch
