#include "core/http/transport/worker.h"

#include <utility>

namespace sluice::http {

Worker::Worker() {
  thread_ = base::Thread([this] { work(); });
}

Worker::~Worker() {
  stop();
}

void Worker::stop() {
  {
    const base::MutexLock lock(mutex_);
    if (std::exchange(is_unwanted_, true)) return;
  }
  changed_.notify_all();
  thread_.join();
  const base::MutexLock lock(mutex_);
  jobs_.clear();
}

void Worker::post(Job job) {
  {
    const base::MutexLock lock(mutex_);
    if (is_unwanted_) return;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

std::size_t Worker::waiting() {
  const base::MutexLock lock(mutex_);
  return jobs_.size();
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
