#include "core/http/transport/worker.h"

#include <utility>

namespace sluice::http {

Worker::Worker() {
  thread_ = base::Thread([this] { work(); });
}

Worker::~Worker() {
  {
    const base::MutexLock lock(mutex_);
    is_unwanted_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::post(Job job) {
  {
    const base::MutexLock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Worker::work() {
  while (true) {
    base::MutexLock lock(mutex_);
    while (!is_unwanted_ && jobs_.empty()) changed_.wait(lock);
    if (is_unwanted_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (...) {  // the last catch of this thread
    }
  }
}

}  // namespace sluice::http
