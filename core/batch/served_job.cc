#include "core/batch/served_job.h"

#include <exception>
#include <fmt/format.h>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"

namespace sluice::batch {
namespace {

// How long to wait for a result at most: those before it must become durable even if none follows.
constexpr std::chrono::milliseconds wait_max{500};

struct Stopped {};  // what the stop check of the rows throws

}  // namespace

// Where the service leaves what has ended.
class ServedJob::Inbox {
 public:
  struct Ended {
    rows::Task task;
    rows::Outcome outcome;
  };

  // On the engine thread. An end for which there is no memory is a failure of the job, which takes
  // the row up again.
  void put(const rows::Task& task, const rows::Outcome& outcome) {
    {
      const base::MutexLock lock(mutex_);
      try {
        ended_.push_back({task, outcome});
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    changed_.notify_all();
  }

  std::vector<Ended> take() {
    const base::MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    return std::exchange(ended_, {});
  }

  void stop() {
    {
      const base::MutexLock lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
  }

  bool is_stopped() const {
    const base::MutexLock lock(mutex_);
    return is_stopped_;
  }

  void wait() {
    base::MutexLock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + wait_max;
    while (!is_stopped_ && !failure_ && ended_.empty() && changed_.wait_until(lock, end)) {
    }
  }

 private:
  mutable base::Mutex mutex_;
  base::Condition changed_;
  std::vector<Ended> ended_ SLUICE_GUARDED_BY(mutex_);
  std::exception_ptr failure_ SLUICE_GUARDED_BY(mutex_);
  bool is_stopped_ SLUICE_GUARDED_BY(mutex_) = false;
};

RowOptions ServedJob::with_stop_check(RowOptions options, std::shared_ptr<Inbox> inbox) {
  options.stop_check = [inbox = std::move(inbox)] {
    if (inbox->is_stopped()) throw Stopped{};
  };
  return options;
}

ServedJob::ServedJob(serve::Service& service, const Input& input, DoneRows& done, Journal& journal,
                     const ServedJobOptions& options)
    : service_(service),
      journal_(journal),
      options_(options),
      inbox_(std::make_shared<Inbox>()),
      rows_(service.engine().tokenizer(), input, done, with_stop_check(options, inbox_),
            [&journal](std::string_view line) { journal.append(line); }) {}

ServedJob::~ServedJob() {
  for (const auto& [id, held] : submitted_) service_.cancel(id, "the batch was stopped");
}

void ServedJob::stop() {
  inbox_->stop();
}

void ServedJob::run(const std::function<void()>& look) {
  while (!rows_.done().is_complete() && !inbox_->is_stopped() && feed()) {
    inbox_->wait();
    take_ended();
    journal_.sync_if_due();
    look();
  }
  take_ended();
  journal_.sync();
  look();
}

// Submits tasks until as many are under way as are allowed. Returns whether there is something to
// wait for: not when every row was given out, or the service has stopped.
bool ServedJob::feed() {
  if (std::chrono::steady_clock::now() < pause_end_) return true;
  while (submitted_.size() < options_.texts_max && !inbox_->is_stopped()) {
    try {
      if (!next_) next_ = rows_.next();
    } catch (const Stopped&) {
      return false;
    }
    if (!next_) break;
    if (refuse_too_large(*next_)) {
      next_.reset();
      continue;
    }
    if (!submit()) return !submitted_.empty() || service_.state() == serve::Service::State::ready;
  }
  return !submitted_.empty();
}

// A task for which there could never be memory gets an error.
bool ServedJob::refuse_too_large(const rows::Task& task) {
  if (options_.allowance == nullptr) return false;
  const std::uint64_t bytes = rows::waiting_bytes(task);
  const std::uint64_t most = options_.allowance->bytes_for_one();
  if (bytes <= most) return false;
  rows::Outcome outcome;
  outcome.end = rows::Outcome::End::failed;
  outcome.problem =
      fmt::format("the row needs {} bytes of the server's memory, the most is {}", bytes, most);
  rows_.take(task, outcome);
  return true;
}

// Returns false where the service, or the memory for clients, has no room now.
bool ServedJob::submit() {
  Allowance::Held held;
  if (options_.allowance != nullptr) {
    std::optional<Allowance::Held> taken = options_.allowance->take(rows::waiting_bytes(*next_));
    if (!taken) return false;
    held = std::move(*taken);
  }
  rows::Task task = *next_;
  task.priority = rows::Priority::background;
  task.drafts_group = options_.drafts_group;
  serve::Events events;
  events.on_done = [inbox = inbox_](const rows::Task& ended, const rows::Outcome& outcome) {
    inbox->put(ended, outcome);
  };
  const auto accepted = service_.submit(std::move(task), std::move(events));
  const auto* id = std::get_if<std::uint64_t>(&accepted);
  if (id == nullptr) return false;
  submitted_.emplace(*id, std::move(held));
  next_.reset();
  return true;
}

void ServedJob::take_ended() {
  const std::vector<Inbox::Ended> all = inbox_->take();
  for (const Inbox::Ended& one : all) submitted_.erase(one.task.id);
  for (const Inbox::Ended& one : all) {
    // A row whose task was cancelled, or failed because the engine has, has no result; whoever
    // goes on computes it again.
    using End = rows::Outcome::End;
    const bool has_stopped = service_.state() != serve::Service::State::ready;
    if (one.outcome.end == End::cancelled) continue;
    if (one.outcome.end == End::failed && has_stopped) continue;
    if (one.outcome.may_run_again) {
      rows_.put_back(one.task);
      pause_end_ = std::chrono::steady_clock::now() + options_.retry_pause;
      continue;
    }
    rows_.take(one.task, one.outcome);
  }
}

}  // namespace sluice::batch
