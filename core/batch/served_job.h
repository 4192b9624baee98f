// A batch in a server: a service runs the tasks of its rows in the background, and a journal keeps
// their results. A row that could not run because of the machine, and not because of what it asks
// for, is run again.
//
// Threads: used by one thread; stop() may be called by any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>

#include "core/allowance.h"
#include "core/batch/job_rows.h"
#include "core/batch/journal.h"
#include "core/serve/service.h"

namespace sluice::batch {

struct ServedJobOptions : RowOptions {
  std::size_t texts_max = 8;       // given to the service at a time
  std::uint32_t drafts_group = 0;  // of its tasks
  Allowance* allowance = nullptr;  // what they hold comes out of it; null: out of nothing
  // Before texts are begun again whose weights could not be read.
  std::chrono::milliseconds retry_pause{5000};
};

class ServedJob {
 public:
  // Runs the rows that are not in `done`, and adds them to it when the journal has them. The
  // references must outlive the job.
  ServedJob(serve::Service& service, const Input& input, DoneRows& done, Journal& journal,
            const ServedJobOptions& options);
  ~ServedJob();  // cancels what the service has; nothing is called back any more
  ServedJob(const ServedJob&) = delete;
  ServedJob& operator=(const ServedJob&) = delete;

  // Returns when all rows are done and on the disk, after stop(), or when the service takes no more
  // tasks; what is done by then is on the disk. Throws what the journal and the input throw: those
  // rows that the journal does not have are to be computed by another job. Calls `look` now and
  // then.
  void run(const std::function<void()>& look);

  // Ends run() soon.
  void stop();

 private:
  class Inbox;

  static RowOptions with_stop_check(RowOptions options, std::shared_ptr<Inbox> inbox);
  bool feed();
  bool refuse_too_large(const rows::Task& task);
  bool submit();
  void take_ended();

  serve::Service& service_;
  Journal& journal_;
  ServedJobOptions options_;
  std::shared_ptr<Inbox> inbox_;  // the callbacks hold it too, so they may come late
  JobRows rows_;
  std::optional<rows::Task> next_;                      // that the service had no room for
  std::map<std::uint64_t, Allowance::Held> submitted_;  // ids of tasks that have not ended
  std::chrono::steady_clock::time_point pause_end_;
};

}  // namespace sluice::batch
