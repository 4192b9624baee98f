// Runs batches one after the other in the background, beside the requests of people who wait: a
// queue and a thread around batch::ServedJob. Each result goes to a journal as soon as it is there,
// so a server that ends in whatever way goes on where it was; every row gets its result once.
//
// Only what is wrong with a batch itself ends it as failed. A problem of the machine (a full disk,
// --data-size, an input that cannot be read) pauses it: the batch says why, the others run
// meanwhile, and it is tried again. A batch that was begun with another model or other settings
// waits for a server that has those, or for its client to cancel it; its results do not mix.
//
// Threads: the members may be called by any thread; the work is done on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"
#include "core/batch/served_job.h"
#include "core/http/jobs/batch_store.h"
#include "core/http/jobs/file_store.h"
#include "core/serve/service.h"

namespace sluice::http {

// More rows make a batch fail, as in OpenAI's API. It bounds the memory of their index.
inline constexpr std::uint64_t batch_rows_max = 50'000;

// retry_pause is also the first pause of a batch that the machine does not let go on; later ones
// are up to 16 times as long.
struct BatchSettings : batch::ServedJobOptions {
  // Everything that the results depend on, besides the input (batch::JobState::settings).
  nlohmann::ordered_json state = nlohmann::ordered_json::object();
  // Called on the runner's thread with one line when a batch pauses. Must not throw. May be empty.
  std::function<void(const std::string& line)> on_pause = {};
};

class BatchRunner {
 public:
  // All references must outlive the runner.
  BatchRunner(BatchStore& batches, FileStore& files, serve::Service& service,
              BatchSettings settings, files::SystemCalls& system = files::kernel());
  ~BatchRunner();  // as stop()
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Tells the runner that there is a new batch.
  void look();

  // Ends a batch; what is done of it is kept. One that runs ends soon, any other at once.
  void cancel(const std::string& id);

  // Saves what is done, and waits for that. The next runner goes on.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Pause {
    Clock::time_point end;
    unsigned tries = 0;
    std::string reason;
  };
  class Current;  // makes the job that runs known to stop() and cancel()

  void work();
  std::optional<std::string> wait_for_batch();
  void run(const std::string& id);
  bool take_up(const std::string& id, batch::Journal& journal);
  void run_rows(const std::string& id, const batch::Input& input, batch::Journal& journal);
  bool has_its_settings(const std::string& id, const batch::JobState& state,
                        const std::optional<batch::JobState>& before, bool has_results);
  void finish(const std::string& id, batch::Journal& journal, std::string_view status,
              const std::string& problem = {});
  void remove_journal(const std::string& id);
  std::string write_file(const std::string& id, const batch::Journal& journal, bool of_errors);
  void pause(const std::string& id, const std::exception_ptr& problem) SLUICE_REQUIRES(mutex_);
  void pause_until(const std::string& id, std::optional<Clock::time_point> end,
                   const std::string& reason, const std::string& line) SLUICE_REQUIRES(mutex_);
  bool is_cancelling(const std::string& id) const;

  BatchStore& batches_;
  FileStore& files_;
  serve::Service& service_;
  BatchSettings settings_;
  files::SystemCalls& system_;
  std::uint32_t drafts_group_ = 0;  // of the last job: counted down, as those of clients count up

  base::Mutex mutex_;
  base::Condition changed_;
  bool is_unwanted_ SLUICE_GUARDED_BY(mutex_) = false;
  bool has_news_ SLUICE_GUARDED_BY(mutex_) = false;
  std::string running_ SLUICE_GUARDED_BY(mutex_);                  // the id of the batch that runs
  batch::ServedJob* job_ SLUICE_GUARDED_BY(mutex_) = nullptr;      // its job, while there is one
  std::map<std::string, Pause> paused_ SLUICE_GUARDED_BY(mutex_);  // by id

  base::Thread thread_;
};

}  // namespace sluice::http
