#include "core/batch/task_preparer.h"

#include <chrono>
#include <utility>

#include "topology/thread_team.h"

namespace sluice::batch {
namespace {

constexpr std::uint64_t stack_bytes = std::uint64_t{256} << 10;  // of the helper thread, about
constexpr std::uint64_t task_bytes = 1024;                       // besides its prompt and its texts

std::uint64_t bytes_of(const TaskPreparer::Prepared& prepared) {
  std::uint64_t bytes = task_bytes;
  const auto* task = std::get_if<rows::Task>(&prepared.made);
  if (task == nullptr) return bytes;
  bytes += task->prompt.capacity() * sizeof(tokenizer::Token) + task->held_bytes;
  for (const std::string& text : task->stop) bytes += text.size();
  return bytes;
}

}  // namespace

TaskPreparer::TaskPreparer(const RowTasks& maker, NextRow next_row, const PreparerLimits& limits,
                           topology::CpuList cpus)
    : maker_(maker), next_row_(std::move(next_row)), limits_(limits) {
  thread_ = base::Thread([this, cpus = std::move(cpus)] { work(cpus); });
}

TaskPreparer::~TaskPreparer() {
  {
    const base::MutexLock lock(mutex_);
    is_unwanted_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool TaskPreparer::is_full() const {
  return !queue_.empty() &&
         (queue_.size() >= limits_.tasks_max || queue_bytes_ >= limits_.bytes_max);
}

void TaskPreparer::work(const topology::CpuList& cpus) {
  std::exception_ptr failure;  // next() throws it, which ends the job
  try {
    if (!cpus.empty()) topology::allow_calling_thread(cpus);
    while (const std::optional<std::uint64_t> row = next_row_()) {
      Prepared prepared{*row, maker_.make(*row)};
      const std::uint64_t bytes = bytes_of(prepared);
      base::MutexLock lock(mutex_);
      while (!is_unwanted_ && is_full()) changed_.wait(lock);
      if (is_unwanted_) return;
      queue_bytes_ += bytes;
      queue_.push_back(std::move(prepared));
      lock.unlock();
      changed_.notify_all();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const base::MutexLock lock(mutex_);
    failure_ = failure;
    is_over_ = true;
  }
  changed_.notify_all();
}

std::optional<TaskPreparer::Prepared> TaskPreparer::next() {
  base::MutexLock lock(mutex_);
  if (queue_.empty() && !is_over_) {
    const auto begin = std::chrono::steady_clock::now();
    while (!is_over_ && queue_.empty()) changed_.wait(lock);
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (queue_.empty()) {
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }
  Prepared prepared = std::move(queue_.front());
  queue_.pop_front();
  queue_bytes_ -= bytes_of(prepared);
  lock.unlock();
  changed_.notify_all();
  return prepared;
}

std::uint64_t prepared_bytes(const PreparerLimits& limits, std::uint64_t positions) {
  const std::uint64_t task =
      task_bytes + rows::header_bytes_max + positions * sizeof(tokenizer::Token);
  return stack_bytes + limits.bytes_max + 2 * task;
}

}  // namespace sluice::batch
