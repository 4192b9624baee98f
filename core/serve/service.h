// Runs tasks for several threads on one engine.
//
// A service owns a thread, the engine thread, which opens the engine, runs the scheduler's steps
// and closes the engine again. Other threads submit tasks, get their text as it comes, and may
// cancel them at any moment; the step that is being computed is given up for that if need be.
//
//   Service service(open, {.queue_max = 64});
//   service.wait_until_ready();
//   const auto id = service.submit(task, {.on_token = ..., .on_done = ...});
//
// Every task that was accepted gets any number of on_prompt and on_token calls and then exactly one
// on_done call, whatever happens: it ends, it is cancelled, the engine fails, the service is
// stopped.
//
// A task that throws fails alone (core/serve/scheduler.h). A step whose weights cannot be read
// (std::system_error) is tried again, since it would give the same bits. When that does not help,
// the tasks of the step fail, and the service goes on with the others. Any other failure of the
// engine ends the service: all its tasks fail, and failure() says why.
//
// Threads: the members may be called by any thread at any time, also from the callbacks, except the
// destructor, drain() and wait_until_ready(), which wait for the engine thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "core/engine/engine.h"
#include "core/rows/task.h"
#include "core/serve/scheduler.h"

namespace sluice::serve {

// Called on the engine thread, which computes nothing meanwhile: they must return soon. The text of
// an event and its log probabilities are valid during the call. What on_token or on_prompt throws
// makes its task fail; what on_done throws is told to on_trouble and otherwise ignored.
struct Events {
  std::function<void(const rows::Task&, const rows::TokenEvent&)> on_token;  // may be empty
  std::function<void(const rows::Task&, const rows::Outcome&)> on_done;
  // Before the first token. May be empty.
  std::function<void(const rows::Task&, const rows::PromptProgress&)> on_prompt = {};
};

struct ServiceOptions {
  SchedulerOptions scheduler = {};
  std::size_t queue_max = 256;  // tasks that wait to be begun, of each priority
  // How often a step is tried whose weights cannot be read, and how long the service waits before
  // the second time; four times as long before each further one.
  unsigned step_tries = 4;
  std::chrono::milliseconds retry_pause{50};
  // Called on the engine thread with one line when tasks fail for that reason, or on_done throws.
  // Must not throw. May be empty.
  std::function<void(const std::string& line)> on_trouble = {};
};

class Service {
 public:
  // Opens the engine, on the engine thread. `stop_check` belongs into EngineOptions; on_load may
  // call it too, so that stop() ends the loading.
  using OpenEngine =
      std::function<std::unique_ptr<engine::Engine>(std::function<void()> stop_check)>;

  enum class State {
    loading,   // the engine is being opened; no task is accepted yet
    ready,     // tasks run
    draining,  // no task is accepted any more
    stopped,   // nothing runs, and nothing will
    failed,    // as stopped, because of failure()
  };

  enum class Refusal { queue_is_full, not_running };

  struct Statistics {
    State state = State::loading;
    std::uint64_t queued_interactive = 0, queued_background = 0;  // not yet begun
    std::uint64_t running = 0;                                    // begun and not ended
    std::uint64_t accepted = 0, refused = 0;  // of all time, as all that follows
    std::uint64_t completed = 0, failed = 0, cancelled = 0;
    std::uint64_t steps_given_up = 0;
    std::uint64_t read_failures = 0;  // steps whose weights could not be read, each try
    std::uint64_t steps_failed = 0;   // because trying again did not help
    // The last step has failed, not long ago.
    bool is_in_trouble = false;
    // From submit() to the first token, of tasks that had one.
    double first_token_s = 0;
    std::uint64_t first_tokens = 0;
    SchedulerCounts scheduler;
    std::optional<streaming::ExpertStatistics> experts;  // nothing for a model without experts
  };

  // Returns at once.
  Service(OpenEngine open, const ServiceOptions& options);
  ~Service();  // as stop()
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Waits until tasks run. Throws what opening the engine has thrown.
  void wait_until_ready();

  // Once tasks run. Other threads may use only what never changes: tokenizer(), facts(), plan(),
  // step_columns() and step_logits(); and everything once the service is stopped. Valid as long as
  // the service.
  const engine::Engine& engine() const { return *engine_; }

  // rows::Task::priority decides which queue it waits in. Returns its id, or why it was refused.
  std::variant<std::uint64_t, Refusal> submit(rows::Task task, Events events);

  // Ends a task soon; `reason` is told in its outcome. Does nothing when it has ended, or when
  // there is no such task.
  void cancel(std::uint64_t id, std::string_view reason = "the request was cancelled");

  // Accepts no more tasks, cancels those in the background that have not begun, and waits until the
  // others have ended; cancels what is left at the deadline. Returns whether nothing had to be
  // cancelled then. The service is stopped after it.
  bool drain(std::chrono::steady_clock::time_point deadline);

  // Accepts no more tasks, and cancels all. Does not wait for that.
  void stop();

  // For watchdogs: has_given_sign() becomes true once the engine thread has got on, between steps
  // or in the middle of one.
  void ask_for_sign();
  bool has_given_sign() const { return !is_asked_; }

  State state() const;
  std::exception_ptr failure() const;  // null unless the state is failed
  Statistics statistics() const;

 private:
  using Clock = std::chrono::steady_clock;

  // A task that was accepted, and has not ended. From then on it only moves from one map to
  // another, which cannot fail: so it always gets its end.
  struct Accepted {
    rows::Task task;  // moved to the scheduler when it begins
    Events events;
    Clock::time_point when;
    bool has_first_token = false;
    rows::Outcome outcome = {};  // in dropped_
  };
  using Tasks = std::map<std::uint64_t, Accepted>;  // by id, and so in their order

  bool has_tasks() const SLUICE_REQUIRES(mutex_);
  bool has_stopped() const SLUICE_REQUIRES(mutex_);
  Tasks& queue_of(rows::Priority priority) SLUICE_REQUIRES(mutex_);
  void drop(Tasks& queue, Tasks::iterator task, std::string_view problem, rows::Outcome::End end)
      SLUICE_REQUIRES(mutex_);
  void drop_all(Tasks& queue, std::string_view problem, rows::Outcome::End end)
      SLUICE_REQUIRES(mutex_);

  // All on the engine thread.
  void run();
  void open();
  void serve();
  bool try_step();
  void fail_step(const std::system_error& error);
  bool wait_for_work();
  void check_step();
  void take_orders();
  std::optional<rows::Task> next_task(rows::Priority least);
  Accepted& running(const rows::Task& task) SLUICE_REQUIRES(mutex_);
  void tell_prompt(const rows::Task& task, const rows::PromptProgress& prompt);
  void tell_token(const rows::Task& task, const rows::TokenEvent& event);
  void end_running(const rows::Task& task, const rows::Outcome& outcome);
  void tell_end(const Accepted& accepted, const rows::Task& task, const rows::Outcome& outcome);
  void publish_counts();
  void fail_all(const std::string& problem);

  OpenEngine open_;
  ServiceOptions options_;

  // Used by the engine thread only; engine_ is set once, before the state is `ready`.
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Scheduler> scheduler_;

  mutable base::Mutex mutex_;
  base::Condition changed_;  // for the engine thread, and for those that wait for it
  State state_ SLUICE_GUARDED_BY(mutex_) = State::loading;
  std::exception_ptr failure_ SLUICE_GUARDED_BY(mutex_);
  std::array<Tasks, 2> queues_ SLUICE_GUARDED_BY(mutex_);  // by priority
  Tasks dropped_ SLUICE_GUARDED_BY(mutex_);  // ended in the queue; this must still be told
  // Without their rows::Task. Only the engine thread changes it.
  Tasks running_ SLUICE_GUARDED_BY(mutex_);
  // Ids, and why.
  std::vector<std::pair<std::uint64_t, std::string>> cancelled_ SLUICE_GUARDED_BY(mutex_);
  bool cancels_all_ SLUICE_GUARDED_BY(mutex_) = false;
  bool is_unwanted_ SLUICE_GUARDED_BY(mutex_) = false;  // the service is being destroyed
  // When the last step failed; none: it did not.
  std::optional<Clock::time_point> trouble_ SLUICE_GUARDED_BY(mutex_);
  std::uint64_t next_id_ SLUICE_GUARDED_BY(mutex_) = 1;
  Statistics statistics_ SLUICE_GUARDED_BY(mutex_);

  // True when the engine thread should look at what mutex_ guards. It is read without the lock,
  // also in the middle of a step.
  std::atomic<bool> has_orders_{false};
  std::atomic<bool> is_asked_{false};  // for a sign of life

  base::Thread thread_;
};

}  // namespace sluice::serve
