#include "core/serve/service.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/rows/row_problem.h"

namespace sluice::serve {
namespace {

// Ends a step, or the opening of the engine. Never leaves this file.
struct GivenUp {};

constexpr std::string_view stopped = "the server is stopping";

// A failure longer ago says nothing: if nobody asks for text because the service is said to be in
// trouble, no step can show that it no longer is.
constexpr std::chrono::seconds trouble_time{60};

}  // namespace

Service::Service(OpenEngine open, const ServiceOptions& options)
    : open_(std::move(open)), options_(options) {
  thread_ = base::Thread([this] { run(); });
}

Service::~Service() {
  stop();
  {
    const base::MutexLock lock(mutex_);
    is_unwanted_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Service::wait_until_ready() {
  base::MutexLock lock(mutex_);
  while (state_ == State::loading) changed_.wait(lock);
  if (failure_) std::rethrow_exception(failure_);
}

bool Service::has_tasks() const {
  return std::ranges::any_of(queues_, [](const Tasks& queue) { return !queue.empty(); });
}

bool Service::has_stopped() const {
  return state_ == State::stopped || state_ == State::failed;
}

Service::Tasks& Service::queue_of(rows::Priority priority) {
  return queues_[priority == rows::Priority::interactive ? 0 : 1];
}

std::variant<std::uint64_t, Service::Refusal> Service::submit(rows::Task task, Events events) {
  std::uint64_t id = 0;
  {
    const base::MutexLock lock(mutex_);
    Tasks& queue = queue_of(task.priority);
    const bool is_full = queue.size() >= options_.queue_max;
    if (state_ != State::ready || is_full) {
      ++statistics_.refused;
      return state_ == State::ready ? Refusal::queue_is_full : Refusal::not_running;
    }
    task.id = id = next_id_++;
    const bool is_urgent = task.priority == rows::Priority::interactive;
    queue.try_emplace(id, Accepted{std::move(task), std::move(events), Clock::now()});
    ++statistics_.accepted;
    has_orders_ = has_orders_ || is_urgent;
  }
  changed_.notify_all();
  return id;
}

void Service::cancel(std::uint64_t id, std::string_view reason) {
  {
    const base::MutexLock lock(mutex_);
    for (Tasks& queue : queues_) {
      const auto found = queue.find(id);
      if (found != queue.end()) drop(queue, found, reason, rows::Outcome::End::cancelled);
    }
    if (running_.contains(id)) cancelled_.emplace_back(id, reason);
    has_orders_ = true;
  }
  changed_.notify_all();
}

void Service::drop(Tasks& queue, Tasks::iterator task, std::string_view problem,
                   rows::Outcome::End end) {
  task->second.outcome.problem = problem;
  task->second.outcome.end = end;
  dropped_.insert(queue.extract(task));
  has_orders_ = true;
}

void Service::drop_all(Tasks& queue, std::string_view problem, rows::Outcome::End end) {
  while (!queue.empty()) drop(queue, queue.begin(), problem, end);
}

bool Service::drain(std::chrono::steady_clock::time_point deadline) {
  base::MutexLock lock(mutex_);
  if (state_ == State::ready || state_ == State::loading) state_ = State::draining;
  drop_all(queue_of(rows::Priority::background), stopped, rows::Outcome::End::cancelled);
  has_orders_ = true;
  changed_.notify_all();
  bool is_in_time = true;
  while (!has_stopped() && is_in_time) is_in_time = changed_.wait_until(lock, deadline);
  const bool is_clean = has_stopped();
  lock.unlock();
  stop();
  lock.lock();
  while (!has_stopped()) changed_.wait(lock);
  return is_clean;
}

void Service::stop() {
  {
    const base::MutexLock lock(mutex_);
    if (state_ == State::ready || state_ == State::loading) state_ = State::draining;
    for (Tasks& queue : queues_) drop_all(queue, stopped, rows::Outcome::End::cancelled);
    cancels_all_ = true;
    has_orders_ = true;
  }
  changed_.notify_all();
}

void Service::ask_for_sign() {
  {
    const base::MutexLock lock(mutex_);
    is_asked_ = true;
    has_orders_ = true;
  }
  changed_.notify_all();
}

Service::State Service::state() const {
  const base::MutexLock lock(mutex_);
  return state_;
}

std::exception_ptr Service::failure() const {
  const base::MutexLock lock(mutex_);
  return failure_;
}

Service::Statistics Service::statistics() const {
  const base::MutexLock lock(mutex_);
  Statistics statistics = statistics_;
  statistics.state = state_;
  statistics.queued_interactive = queues_[0].size();
  statistics.queued_background = queues_[1].size();
  statistics.running = running_.size();
  statistics.is_in_trouble = trouble_ && Clock::now() - *trouble_ < trouble_time;
  return statistics;
}

// What is caught here concerns the engine, and no single task: all fail.
void Service::run() {
  std::string problem;
  std::exception_ptr failure;
  try {
    open();
    serve();
  } catch (const GivenUp&) {  // while the engine was opened
  } catch (const std::exception& error) {
    failure = std::current_exception();
    problem = rows::problem_of(error);
  } catch (...) {
    failure = std::current_exception();
    problem = "the engine has failed";
  }
  // Not within a handler: this calls others, and what is thrown there must not end the process.
  try {
    if (failure) fail_all(problem);
  } catch (...) {  // no memory to tell them; whoever waits for the service learns of `failure`
  }
  base::MutexLock lock(mutex_);
  state_ = failure ? State::failed : State::stopped;
  failure_ = failure;
  changed_.notify_all();
  while (!is_unwanted_) changed_.wait(lock);
  lock.unlock();
  scheduler_.reset();
  engine_.reset();
}

void Service::open() {
  engine_ = open_([this] { check_step(); });
  scheduler_ = std::make_unique<Scheduler>(
      *engine_, options_.scheduler, [this](rows::Priority least) { return next_task(least); },
      [this](const rows::Task& task, const rows::Outcome& outcome) { end_running(task, outcome); },
      [this](const rows::Task& task, const rows::TokenEvent& event) { tell_token(task, event); },
      [this](const rows::Task& task, const rows::PromptProgress& prompt) {
        tell_prompt(task, prompt);
      });
  const base::MutexLock lock(mutex_);
  if (state_ == State::loading) state_ = State::ready;
  changed_.notify_all();
}

void Service::serve() {
  do {
    bool has_work = true;
    while (has_work) {
      take_orders();
      has_work = try_step();
      publish_counts();
    }
  } while (wait_for_work());
}

// Returns whether there may be more to do.
bool Service::try_step() {
  std::chrono::milliseconds pause = options_.retry_pause;
  for (unsigned tries = 1;; ++tries) {
    try {
      const bool has_work = scheduler_->step();
      const base::MutexLock lock(mutex_);
      if (has_work) trouble_.reset();
      return has_work;
    } catch (const GivenUp&) {
      const base::MutexLock lock(mutex_);
      ++statistics_.steps_given_up;
      return true;
    } catch (const std::system_error& error) {
      base::MutexLock lock(mutex_);
      ++statistics_.read_failures;
      if (tries >= options_.step_tries) {
        lock.unlock();
        fail_step(error);
        return true;
      }
      const Clock::time_point end = Clock::now() + pause;
      while (!cancels_all_ && changed_.wait_until(lock, end)) {
      }
    }
    pause *= 4;
    take_orders();
  }
}

// Clients are not told of the path in the error.
void Service::fail_step(const std::system_error& error) {
  {
    const base::MutexLock lock(mutex_);
    ++statistics_.steps_failed;
    trouble_ = Clock::now();
  }
  const bool has_ended = scheduler_->end_step(fmt::format(
      "the weights of the model cannot be read ({}): try again later", error.code().message()));
  if (!has_ended) throw;
  if (options_.on_trouble) options_.on_trouble(error.what());
}

void Service::publish_counts() {
  const base::MutexLock lock(mutex_);
  statistics_.scheduler = scheduler_->counts();
  statistics_.experts = engine_->expert_statistics();
}

void Service::fail_all(const std::string& problem) {
  {
    const base::MutexLock lock(mutex_);
    state_ = State::draining;
    for (Tasks& queue : queues_) drop_all(queue, problem, rows::Outcome::End::failed);
  }
  take_orders();
  if (scheduler_) scheduler_->end_all(problem);
}

// Returns false when there will be no more.
bool Service::wait_for_work() {
  base::MutexLock lock(mutex_);
  while (!has_tasks() && !has_orders_ && state_ == State::ready) changed_.wait(lock);
  return has_tasks() || has_orders_;
}

// In the middle of a step, and while the engine is opened.
void Service::check_step() {
  if (!has_orders_) return;
  take_orders();
  const auto [state, interactive_waits] = [this] {
    const base::MutexLock lock(mutex_);
    return std::pair(state_, !queue_of(rows::Priority::interactive).empty());
  }();
  const bool is_opening = scheduler_ == nullptr;
  if (is_opening ? state != State::loading : scheduler_->should_give_up(interactive_waits)) {
    throw GivenUp();
  }
}

void Service::take_orders() {
  if (!has_orders_) return;
  Tasks dropped;
  std::vector<std::pair<std::uint64_t, std::string>> cancelled;
  {
    const base::MutexLock lock(mutex_);
    has_orders_ = is_asked_ = false;  // together, so that no question falls between them
    dropped.swap(dropped_);
    cancelled.swap(cancelled_);
    if (cancels_all_) {
      for (const auto& [id, accepted] : running_) cancelled.emplace_back(id, stopped);
    }
  }
  for (const auto& [id, reason] : cancelled) {
    if (scheduler_) scheduler_->cancel(id, reason);
  }
  for (const auto& [id, accepted] : dropped) tell_end(accepted, accepted.task, accepted.outcome);
}

std::optional<rows::Task> Service::next_task(rows::Priority least) {
  const base::MutexLock lock(mutex_);
  for (Tasks& queue : queues_) {
    if (&queue == &queue_of(rows::Priority::background) && least == rows::Priority::interactive)
      break;
    if (queue.empty()) continue;
    const auto next = running_.insert(queue.extract(queue.begin())).position;
    return std::move(next->second.task);
  }
  return std::nullopt;
}

// Stays where it is, as only the engine thread takes it out.
Service::Accepted& Service::running(const rows::Task& task) {
  return running_.at(task.id);
}

void Service::tell_prompt(const rows::Task& task, const rows::PromptProgress& prompt) {
  const Events* events = nullptr;
  {
    const base::MutexLock lock(mutex_);
    events = &running(task).events;
  }
  if (events->on_prompt) events->on_prompt(task, prompt);
}

void Service::tell_token(const rows::Task& task, const rows::TokenEvent& event) {
  Accepted* accepted = nullptr;
  {
    const base::MutexLock lock(mutex_);
    accepted = &running(task);
    if (!std::exchange(accepted->has_first_token, true)) {
      const std::chrono::duration<double> waited = Clock::now() - accepted->when;
      statistics_.first_token_s += waited.count();
      ++statistics_.first_tokens;
    }
  }
  if (accepted->events.on_token) accepted->events.on_token(task, event);
}

void Service::end_running(const rows::Task& task, const rows::Outcome& outcome) {
  const auto accepted = [&] {  // whoever has the outcome finds it in the statistics
    const base::MutexLock lock(mutex_);
    statistics_.scheduler = scheduler_->counts();
    return running_.extract(task.id);
  }();
  tell_end(accepted.mapped(), task, outcome);
}

void Service::tell_end(const Accepted& accepted, const rows::Task& task,
                       const rows::Outcome& outcome) {
  {
    const base::MutexLock lock(mutex_);
    switch (outcome.end) {
      case rows::Outcome::End::completed:
        ++statistics_.completed;
        break;
      case rows::Outcome::End::failed:
        ++statistics_.failed;
        break;
      case rows::Outcome::End::cancelled:
        ++statistics_.cancelled;
        break;
    }
  }
  const auto tell_trouble = [this](const char* what) {
    if (options_.on_trouble) options_.on_trouble(fmt::format("an answer is lost: {}", what));
  };
  try {
    accepted.events.on_done(task, outcome);
  } catch (const std::exception& error) {
    tell_trouble(error.what());
  } catch (...) {
    tell_trouble("unknown");
  }
}

}  // namespace sluice::serve
