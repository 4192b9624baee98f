#include "core/http/transport/worker.h"

#include <utility>

#include "topology/signals_blocked.h"

namespace sluice::http {

Worker::Worker() {
  const topology::SignalsBlocked guard;
  thread_ = std::thread([this] { work(); });
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    is_unwanted_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Worker::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_unwanted_ || !jobs_.empty(); });
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
