#include "core/http/jobs/batch_runner.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <system_error>
#include <utility>
#include <vector>

#include "core/batch/job_state.h"
#include "core/http/transport/error.h"
#include "core/rows/request.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

constexpr mode_t private_mode = 0600;

// A batch begins when the disk has at least this much room, so that no rows are computed for
// nothing again and again.
constexpr std::uint64_t room_bytes = std::uint64_t{1} << 20;

constexpr unsigned doublings_max = 4;  // of a pause

struct TooManyRows {};
struct Stopped {};

}  // namespace

class BatchRunner::Current {
 public:
  Current(BatchRunner& runner, batch::ServedJob& job) : runner_(runner) {
    const base::MutexLock lock(runner_.mutex_);
    runner_.job_ = &job;
    if (runner_.is_unwanted_ || runner_.is_cancelling(runner_.running_)) job.stop();
  }
  ~Current() {
    const base::MutexLock lock(runner_.mutex_);
    runner_.job_ = nullptr;
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  BatchRunner& runner_;
};

BatchRunner::BatchRunner(BatchStore& batches, FileStore& files, serve::Service& service,
                         BatchSettings settings, files::SystemCalls& system)
    : batches_(batches),
      files_(files),
      service_(service),
      settings_(std::move(settings)),
      system_(system) {
  // A crash between a batch's end and the end of finish() leaves its journal.
  for (const BatchJson& batch : batches_.list()) {
    if (is_final(batch)) remove_journal(batch.at("id").get<std::string>());
  }
  thread_ = base::Thread([this] { work(); });
}

BatchRunner::~BatchRunner() {
  stop();
}

void BatchRunner::look() {
  {
    const base::MutexLock lock(mutex_);
    has_news_ = true;
  }
  changed_.notify_all();
}

void BatchRunner::cancel(const std::string& id) {
  try {
    batches_.set_status(id, "cancelling");
    // Of one that does not run, nobody else has the journal as long as mutex_ is held.
    const base::MutexLock lock(mutex_);
    if (running_ != id && is_cancelling(id)) {
      batch::Journal journal(batches_.journal_of(id), system_, {}, private_mode);
      take_up(id, journal);
    }
  } catch (const std::exception&) {  // the runner's thread tries it again, and says what is wrong
  }
  {
    const base::MutexLock lock(mutex_);
    if (running_ == id && job_ != nullptr) job_->stop();
    paused_.erase(id);
    has_news_ = true;
  }
  changed_.notify_all();
}

void BatchRunner::stop() {
  {
    const base::MutexLock lock(mutex_);
    is_unwanted_ = true;
    if (job_ != nullptr) job_->stop();
  }
  changed_.notify_all();
  thread_.join();
}

bool BatchRunner::is_cancelling(const std::string& id) const {
  const auto batch = batches_.find(id);
  return batch && batch->at("status") == "cancelling";
}

// What a batch throws pauses it, and must not keep the others from running.
void BatchRunner::work() {
  while (true) {
    try {
      const std::optional<std::string> id = wait_for_batch();
      if (!id) return;
      std::exception_ptr problem;
      try {
        run(*id);
      } catch (const Stopped&) {
      } catch (...) {
        problem = std::current_exception();
      }
      const base::MutexLock lock(mutex_);
      running_.clear();
      if (problem) {
        pause(*id, problem);
      } else if (const auto pause = paused_.find(*id);
                 pause != paused_.end() && pause->second.end <= Clock::now()) {
        paused_.erase(pause);
      }
    } catch (...) {  // no memory even to say so: the last catch of this thread
      std::this_thread::sleep_for(settings_.retry_pause);
    }
  }
}

// Returns the oldest batch that may run; nothing when the runner is to stop.
std::optional<std::string> BatchRunner::wait_for_batch() {
  base::MutexLock lock(mutex_);
  while (!is_unwanted_) {
    has_news_ = false;
    Clock::time_point next = Clock::time_point::max();
    for (const std::string& id : batches_.not_ended()) {
      const auto pause = paused_.find(id);
      if (pause == paused_.end() || pause->second.end <= Clock::now()) return running_ = id;
      next = std::min(next, pause->second.end);
    }
    while (!is_unwanted_ && !has_news_) {
      if (next == Clock::time_point::max()) {
        changed_.wait(lock);
      } else if (!changed_.wait_until(lock, next)) {
        break;
      }
    }
  }
  return std::nullopt;
}

void BatchRunner::run(const std::string& id) {
  const auto batch = batches_.find(id);
  if (!batch) return;
  const auto check = [this] {
    const base::MutexLock lock(mutex_);
    if (is_unwanted_) throw Stopped();
  };
  batch::Journal journal(
      batches_.journal_of(id), system_, [&](std::uint64_t) { check(); }, private_mode);
  if (!take_up(id, journal)) return;
  const auto file = files_.find(batch->at("input_file_id").get<std::string>());
  if (!file) return finish(id, journal, "failed", "its input file is not there");
  try {
    const batch::Input input(files_.path_of(*file), [&](const batch::Input::Progress& progress) {
      if (progress.rows > batch_rows_max) throw TooManyRows();
      check();
    });
    if (input.rows() == 0) return finish(id, journal, "failed", "its input file has no rows");
    run_rows(id, input, journal);
  } catch (const TooManyRows&) {
    finish(id, journal, "failed",
           fmt::format("its input file has more than {} rows", batch_rows_max));
  }
}

// Returns whether there is more to do; not for a batch that ends here.
bool BatchRunner::take_up(const std::string& id, batch::Journal& journal) {
  if (journal.scan().verdict == batch::JournalVerdict::foreign) {
    const std::string problem = "what was kept of its results is damaged";
    batches_.set_status(id, "failed", {{"errors", batch_errors("cannot_run", problem)}});
    return false;
  }
  journal.go_on();
  if (!is_cancelling(id)) return true;
  finish(id, journal, "cancelled");
  return false;
}

void BatchRunner::run_rows(const std::string& id, const batch::Input& input,
                           batch::Journal& journal) {
  const std::filesystem::path path = batches_.journal_of(id);
  const std::optional<batch::JobState> before = batch::read_state(path);
  batch::JobState state{input.bytes(), input.digest(), input.rows(), {}, settings_.state};
  batch::keep_date(state, before);
  const std::vector<batch::ResultFacts>& found = journal.scan().found;
  if (!has_its_settings(id, state, before, !found.empty())) {
    // It may have been cancelled before it was paused, which would last for ever.
    if (is_cancelling(id)) finish(id, journal, "cancelled");
    return;
  }
  files::DurableFile(path, {.mode = private_mode}, system_).reserve(room_bytes);
  if (!before) batch::write_state(path, state, system_, private_mode);
  // It may have been cancelled while its input was read.
  if (!batches_.set_status(id, "in_progress")) return finish(id, journal, "cancelled");
  batch::DoneRows done(input.rows(), {}, found);
  journal.forget_found();
  batch::ServedJobOptions options = settings_;
  options.task.now = batch::date_of(state);
  options.row_bytes_max = rows::request_bytes_max;
  options.drafts_group = --drafts_group_;
  {
    batch::ServedJob job(service_, input, done, journal, options);
    const Current current(*this, job);
    job.run([&] {
      batches_.set_counts(id, done.rows(), done.count() - done.errors(), done.errors());
      batches_.set_pause(id, "");
    });
  }
  if (done.is_complete()) return finish(id, journal, "completed");
  if (is_cancelling(id)) return finish(id, journal, "cancelled");
  // The service has stopped, so nothing can run any more.
  base::MutexLock lock(mutex_);
  while (!is_unwanted_) changed_.wait(lock);
}

// Whether the batch was begun with the model and the settings of this server. If not, it waits.
bool BatchRunner::has_its_settings(const std::string& id, const batch::JobState& state,
                                   const std::optional<batch::JobState>& before, bool has_results) {
  std::vector<std::string> found;
  const std::string model = batches_.find(id)->value("model", "");
  if (before) {
    found = batch::differences(*before, state);
  } else if (has_results) {
    found = {"its settings were not noted"};
  } else if (model != settings_.model_name) {
    found = {fmt::format("it is for the model \"{}\"", model)};
  }
  if (found.empty()) return true;
  const std::string reason = fmt::format(
      "it was begun with other settings: {}; start the server as it was then, or cancel the batch "
      "to get the results so far",
      fmt::join(found, "; "));
  const base::MutexLock lock(mutex_);
  pause_until(id, std::nullopt, reason, reason);
  return false;
}

// Makes files of the results. If a crash interrupts this, the next start does it again, with the
// same ids.
void BatchRunner::finish(const std::string& id, batch::Journal& journal, std::string_view status,
                         const std::string& problem) {
  const auto errors = static_cast<std::uint64_t>(
      std::ranges::count_if(journal.rescan().found, &batch::ResultFacts::is_error));
  const std::uint64_t done = journal.scan().found.size();
  const BatchJson counts = batches_.find(id)->value("request_counts", BatchJson::object());
  batches_.set_counts(id, std::max(counts.value("total", std::uint64_t{0}), done), done - errors,
                      errors);
  if (status == "completed") batches_.set_status(id, "finalizing");
  ordered_json changes = {{"errors", nullptr}};
  if (!problem.empty()) changes["errors"] = batch_errors("cannot_run", problem);
  if (done != errors) changes["output_file_id"] = write_file(id, journal, false);
  if (errors != 0) changes["error_file_id"] = write_file(id, journal, true);
  batches_.set_status(id, status, changes);
  remove_journal(id);
}

void BatchRunner::remove_journal(const std::string& id) {
  const std::filesystem::path path = batches_.journal_of(id);
  system_.unlink(path.c_str());
  system_.unlink(batch::state_path(path).c_str());
}

std::string BatchRunner::write_file(const std::string& id, const batch::Journal& journal,
                                    bool of_errors) {
  std::string file_id = fmt::format("file-{}-{}", id, of_errors ? "errors" : "output");
  if (files_.find(file_id)) return file_id;
  const auto upload = files_.begin(file_id);
  journal.read([&](const batch::ResultFacts& facts, std::string_view line) {
    if (facts.is_error == of_errors) upload->write(line);
  });
  upload->commit(fmt::format("{}_{}.jsonl", id, of_errors ? "error" : "output"), "batch_output");
  return file_id;
}

void BatchRunner::pause(const std::string& id, const std::exception_ptr& problem) {
  const unsigned doublings = std::min(paused_[id].tries++, doublings_max);
  const Clock::time_point end = Clock::now() + settings_.retry_pause * (1U << doublings);
  try {
    std::rethrow_exception(problem);
  } catch (const ApiError& error) {
    pause_until(id, end, error.what(), error.what());
  } catch (const std::system_error& error) {  // clients are not told of paths
    pause_until(id, end, error.code().message(), error.what());
  } catch (const std::exception& error) {
    pause_until(id, end, "the server cannot go on with it at present", error.what());
  }
}

// Without an end the batch waits until it is cancelled.
void BatchRunner::pause_until(const std::string& id, std::optional<Clock::time_point> end,
                              const std::string& reason, const std::string& line) {
  Pause& pause = paused_[id];
  pause.end = end.value_or(Clock::time_point::max());
  batches_.set_pause(id, reason);
  const bool is_new = std::exchange(pause.reason, reason) != reason;
  if (is_new && settings_.on_pause) {
    settings_.on_pause(fmt::format("{} waits: {}{}", id, line, end ? "; it is tried again" : ""));
  }
}

}  // namespace sluice::http
