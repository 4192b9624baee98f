// One thread for what takes too long between two events of the network.
//
// Threads: post() and waiting() may be called by any thread, stop() by one.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "base/mutex.h"
#include "base/thread.h"

namespace sluice::http {

class Worker {
 public:
  // A job answers for what goes wrong in it. What it throws nevertheless is dropped with it, and
  // the next one runs. Destroyed on the thread that runs it.
  using Job = std::function<void()>;

  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The caller sees to it that few jobs wait. After stop() a job is dropped.
  void post(Job job);
  std::size_t waiting();

  // Waits for the job that runs, and drops those that wait.
  void stop();

 private:
  void work();

  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<Job> jobs_ SLUICE_GUARDED_BY(mutex_);
  bool is_unwanted_ SLUICE_GUARDED_BY(mutex_) = false;
  base::Thread thread_;
};

}  // namespace sluice::http
