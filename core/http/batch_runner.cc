#include "core/http/batch_runner.h"

#include <fmt/format.h>
#include <fstream>
#include <set>
#include <utility>
#include <variant>

#include "core/batch/result.h"
#include "core/rows/request.h"
#include "topology/signals_blocked.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

// How long to wait for a result at most: those before it must become durable even if none follows.
constexpr std::chrono::milliseconds wait_max{500};

struct TooManyRows {};

void check_rows(const batch::Input::Progress& progress) {
  if (progress.rows > batch_rows_max) throw TooManyRows();
}

}  // namespace

struct BatchRunner::Run {
  Run(const std::string& id_, const std::filesystem::path& input_path, const BatchRunner& runner)
      : id(id_),
        input(input_path, check_rows),
        journal(runner.batches_.journal_of(id)),
        done(input.rows(), {}),
        tasks(runner.service_.engine().tokenizer(), input, runner.settings_.task),
        results(input, runner.service_.engine().tokenizer(), runner.settings_.model_name) {
    journal.go_on();
    done = batch::DoneRows(input.rows(), {}, journal.scan().found);
    journal.forget_found();
  }

  void append(std::uint64_t row, const batch::RowResult& result) {
    journal.append(result.line);
    done.add(row, result.is_error);
  }

  std::string id;
  batch::Input input;
  batch::Journal journal;
  batch::DoneRows done;
  batch::RowTasks tasks;
  batch::RowResults results;
  std::uint64_t next_row = 1;
  std::deque<rows::Task> ready;       // to be submitted
  std::set<std::uint64_t> submitted;  // ids of tasks that have not ended
  std::chrono::steady_clock::time_point pause_end;
};

BatchRunner::BatchRunner(BatchStore& batches, FileStore& files, serve::Service& service,
                         BatchSettings settings)
    : batches_(batches), files_(files), service_(service), settings_(std::move(settings)) {
  const topology::SignalsBlocked guard;
  thread_ = std::thread([this] { work(); });
}

BatchRunner::~BatchRunner() {
  stop();
}

void BatchRunner::look() {
  {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
  }
  changed_.notify_all();
}

void BatchRunner::cancel(const std::string& id) {
  batches_.set_status(id, "cancelling");
  {
    const std::lock_guard lock(mutex_);
    if (running_ == id) is_cancelled_ = true;
    has_news_ = true;
  }
  changed_.notify_all();
}

void BatchRunner::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_unwanted_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BatchRunner::work() {
  while (true) {
    const std::optional<std::string> id = batches_.next();
    {
      std::unique_lock lock(mutex_);
      if (!id) changed_.wait(lock, [this] { return is_unwanted_ || has_news_; });
      if (is_unwanted_) return;
      has_news_ = false;
      if (!id) continue;
      running_ = *id;
      is_cancelled_ = false;
    }
    run(*id);
    const std::lock_guard lock(mutex_);
    running_.clear();
  }
}

// Whatever is wrong with one batch must not keep the others from running.
void BatchRunner::run(const std::string& id) {
  const auto batch = batches_.find(id);
  if (!batch) return;
  try {
    const auto file = files_.find(batch->at("input_file_id").get<std::string>());
    if (!file) return fail(id, "its input file is not there");
    if (batch->at("model") != settings_.model_name) {
      return fail(id, "it was begun with another model");
    }
    Run running(id, files_.path_of(*file), *this);
    if (running.input.rows() == 0) return fail(id, "its input file has no rows");
    if (batch->at("status") == "cancelling") {
      const std::lock_guard lock(mutex_);
      is_cancelled_ = true;
    } else {
      batches_.set_status(id, "in_progress");
    }
    run_rows(running);
  } catch (const TooManyRows&) {
    fail(id, fmt::format("its input file has more than {} rows", batch_rows_max));
  } catch (const std::exception& error) {
    fail(id, error.what());
  }
}

void BatchRunner::fail(const std::string& id, const std::string& reason) {
  batches_.set_status(
      id, "failed",
      {{"errors",
        {{"object", "list"},
         {"data", ordered_json::array({{{"code", "cannot_run"}, {"message", reason}}})}}}});
}

bool BatchRunner::has_to_end() const {
  const std::lock_guard lock(mutex_);
  return is_unwanted_ || is_cancelled_;
}

void BatchRunner::run_rows(Run& run) {
  try {
    feed_all(run);
  } catch (...) {  // the tasks must not call back for a run that is gone
    give_up(run, false);
    throw;
  }
  bool is_cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    is_cancelled = is_cancelled_;
  }
  if (run.done.is_complete() || is_cancelled) return finish(run);
  // The service has stopped, so nothing can run any more.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_unwanted_; });
}

void BatchRunner::feed_all(Run& run) {
  while (!run.done.is_complete() && !has_to_end()) {
    const bool is_served = feed(run);
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, wait_max,
                        [this] { return is_unwanted_ || is_cancelled_ || !ended_.empty(); });
    }
    take_ended(run);
    run.journal.sync_if_due();
    if (!is_served && run.submitted.empty()) break;  // the service has stopped
  }
  give_up(run, true);
  run.journal.sync();
}

// Submits rows until as many texts are under way as are allowed. Returns false when the service
// accepts none any more.
bool BatchRunner::feed(Run& run) {
  if (std::chrono::steady_clock::now() < run.pause_end) return true;
  while (run.submitted.size() < settings_.texts_max && !has_to_end()) {
    if (run.ready.empty()) {
      while (run.next_row <= run.input.rows() && run.done.has(run.next_row)) ++run.next_row;
      if (run.next_row > run.input.rows()) return true;
      const std::uint64_t row = run.next_row++;
      if (run.input.row_bytes(row) > rows::request_bytes_max) {
        const rows::RefusedRow too_long{
            {},
            "invalid_request",
            fmt::format("the row has {} bytes, the most is {}", run.input.row_bytes(row),
                        rows::request_bytes_max)};
        run.append(row, run.results.refused(row, too_long));
        continue;
      }
      auto made = run.tasks.make(row);
      if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
        run.append(row, run.results.refused(row, *refused));
        continue;
      }
      const rows::Task& task = std::get<rows::Task>(made);
      for (std::uint32_t choice = 0; choice < task.choices; ++choice) {
        run.ready.push_back(rows::task_of_choice(task, choice));
      }
    }
    if (!submit(run)) return service_.state() == serve::Service::State::ready;
  }
  return true;
}

bool BatchRunner::submit(Run& run) {
  rows::Task task = run.ready.front();
  task.priority = rows::Priority::background;
  serve::Events events;
  events.on_done = [this](const rows::Task& ended, const rows::Outcome& outcome) {
    {
      const std::lock_guard lock(mutex_);
      ended_.push_back({ended, outcome});
    }
    changed_.notify_all();
  };
  const auto accepted = service_.submit(std::move(task), std::move(events));
  const auto* id = std::get_if<std::uint64_t>(&accepted);
  if (id == nullptr) return false;
  run.submitted.insert(*id);
  run.ready.pop_front();
  return true;
}

void BatchRunner::take_ended(Run& run) {
  std::deque<Ended> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (const Ended& one : ended) {
    run.submitted.erase(one.task.id);
    // A row whose task was cancelled, or failed because the engine has, has no result; whoever
    // goes on computes it again.
    using End = rows::Outcome::End;
    const bool has_stopped = service_.state() != serve::Service::State::ready;
    if (one.outcome.end == End::cancelled) continue;
    if (one.outcome.end == End::failed && has_stopped) continue;
    if (one.outcome.may_run_again) {
      run.ready.push_front(one.task);
      run.pause_end = std::chrono::steady_clock::now() + settings_.retry_pause;
      continue;
    }
    if (const auto result = run.results.take(one.task, one.outcome)) {
      run.append(one.task.row, *result);
    }
  }
  const batch::DoneRows& done = run.done;
  batches_.set_counts(run.id, done.rows(), done.count() - done.errors(), done.errors());
}

// Cancels what runs, and waits for its end, since the service calls back until then.
void BatchRunner::give_up(Run& run, bool keeps_results) {
  for (const std::uint64_t id : run.submitted) service_.cancel(id, "the batch was stopped");
  while (!run.submitted.empty()) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !ended_.empty(); });
      if (!keeps_results) {
        for (const Ended& one : ended_) run.submitted.erase(one.task.id);
        ended_.clear();
      }
    }
    take_ended(run);
  }
}

// Makes files of the results. If a crash interrupts this, the next start does it again, with the
// same ids.
void BatchRunner::finish(Run& run) {
  const bool is_complete = run.done.is_complete();
  const batch::DoneRows& done = run.done;
  batches_.set_counts(run.id, done.rows(), done.count() - done.errors(), done.errors());
  if (is_complete) batches_.set_status(run.id, "finalizing");
  ordered_json changes = ordered_json::object();
  if (const auto id = write_file(run, false)) changes["output_file_id"] = *id;
  if (const auto id = write_file(run, true)) changes["error_file_id"] = *id;
  batches_.set_status(run.id, is_complete ? "completed" : "cancelled", changes);
  std::filesystem::remove(batches_.journal_of(run.id));
}

// Nothing where there are no such results.
std::optional<std::string> BatchRunner::write_file(Run& run, bool of_errors) {
  const batch::DoneRows& done = run.done;
  if ((of_errors ? done.errors() : done.count() - done.errors()) == 0) return std::nullopt;
  const std::string id = fmt::format("file-{}-{}", run.id, of_errors ? "errors" : "output");
  if (files_.find(id)) return id;
  const auto upload = files_.begin(id);
  std::ifstream results(batches_.journal_of(run.id), std::ios::binary);
  for (std::string line; std::getline(results, line);) {
    const auto facts = batch::read_result(line);
    if (facts && facts->is_error == of_errors) upload->write(line + "\n");
  }
  upload->commit(fmt::format("{}_{}.jsonl", run.id, of_errors ? "error" : "output"),
                 "batch_output");
  return id;
}

}  // namespace sluice::http
