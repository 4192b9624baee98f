// Runs batches one after the other in the background, beside the requests of people who wait. Each
// result goes to a journal as soon as it is there, so a server that ends in whatever way goes on
// where it was; every row gets its result once. A row that could not run because of the machine,
// and not because of what it asks for, is run again.
//
// Threads: the members may be called by any thread; the work is done on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/batch/done_rows.h"
#include "core/batch/journal.h"
#include "core/batch/row_results.h"
#include "core/batch/row_tasks.h"
#include "core/http/batch_store.h"
#include "core/http/file_store.h"
#include "core/rows/task_maker.h"
#include "core/serve/service.h"

namespace sluice::http {

// More rows make a batch fail, as in OpenAI's API. It bounds the memory of their index.
inline constexpr std::uint64_t batch_rows_max = 50'000;

struct BatchSettings {
  rows::TaskOptions task;
  std::string model_name;
  std::size_t texts_max = 8;  // given to the service at a time
  // Before texts are begun again whose weights could not be read.
  std::chrono::milliseconds retry_pause{5000};
};

class BatchRunner {
 public:
  // All references must outlive the runner.
  BatchRunner(BatchStore& batches, FileStore& files, serve::Service& service,
              BatchSettings settings);
  ~BatchRunner();  // as stop()
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Tells the runner that there is a new batch.
  void look();

  // Ends a batch soon; what is done of it is kept.
  void cancel(const std::string& id);

  // Saves what is done, and waits for that. The next runner goes on.
  void stop();

 private:
  struct Ended {
    rows::Task task;
    rows::Outcome outcome;
  };
  struct Run;  // a batch while it runs

  void work();
  void run(const std::string& id);
  void run_rows(Run& run);
  void feed_all(Run& run);
  bool feed(Run& run);
  bool submit(Run& run);
  void take_ended(Run& run);
  void give_up(Run& run, bool keeps_results);
  void finish(Run& run);
  std::optional<std::string> write_file(Run& run, bool of_errors);
  bool has_to_end() const;
  void fail(const std::string& id, const std::string& reason);

  BatchStore& batches_;
  FileStore& files_;
  serve::Service& service_;
  BatchSettings settings_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  bool is_unwanted_ = false;
  bool has_news_ = false;
  std::string running_;        // the id of the batch that runs
  bool is_cancelled_ = false;  // it is to be cancelled
  std::deque<Ended> ended_;

  std::thread thread_;
};

}  // namespace sluice::http
