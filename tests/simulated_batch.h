// What a simulated server keeps on its disks: a batch with its journal, files of clients, and the
// records of batches. It remembers what was reported as durable, and looks for it after a restart.
//
// The batch does with its rows and its journal what batch::ServedJob does, without a thread: so all
// that happens follows from the seed. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/batch/done_rows.h"
#include "core/batch/job.h"
#include "core/batch/journal.h"
#include "core/engine/engine.h"
#include "core/http/jobs/batch_store.h"
#include "core/http/jobs/file_store.h"
#include "core/http/transport/error.h"
#include "core/serve/service.h"
#include "tests/simulated_machine.h"
#include "tests/temporary_folder.h"

namespace sluice::test {

// Says what is wrong with the program. A simulation ends with the first.
using Violation = std::function<void(const std::string& what)>;

// The batch of a world, over all lives of the server.
class SimulatedBatch {
 public:
  // `input`: rows, a line each. `plain` is an engine to which nothing happens.
  SimulatedBatch(const std::filesystem::path& folder, const std::string& input,
                 engine::Engine& plain, const rows::TaskOptions& options, SimulatedDisk& disk,
                 VirtualTime& time, Violation violation)
      : tokenizer_(plain.tokenizer()),
        path_(folder / "batch.jsonl"),
        input_(input_file(folder.parent_path() / "input.jsonl", input)),
        disk_(disk),
        time_(time),
        violation_(std::move(violation)) {
    options_.task = options;
    options_.model_name = "simulated";
    run_undisturbed(plain);
  }

  bool is_complete() const { return is_complete_; }
  std::uint64_t rows() const { return input_.rows(); }
  std::uint64_t lines_written() const { return lines_written_; }

  // What takes a task, whose end is told to ended(), and returns its number; or refuses it.
  using Submit = std::function<std::optional<std::uint64_t>(const rows::Task& task)>;
  using Cancel = std::function<void(std::uint64_t number)>;

  // The server begins to live.
  void begin(std::size_t texts_max, Submit submit, Cancel cancel) {
    texts_max_ = texts_max;
    submit_ = std::move(submit);
    cancel_ = std::move(cancel);
    open();
  }

  void ended(const rows::Task& task, const rows::Outcome& outcome) {
    if (submitted_.erase(task.id) == 0) return;  // of a journal that has failed
    if (outcome.may_run_again) {
      rows_->put_back(task);
      return pause();
    }
    if (outcome.end == rows::Outcome::End::cancelled) return;
    attempt([&] { rows_->take(task, outcome); });
    feed();
  }

  // Between steps.
  void look() {
    if (journal_) attempt([&] { sync_with([&] { journal_->sync_if_due(time_.now()); }); });
  }

  // The server has ended. With the power it has lost what was not synchronised.
  void end(bool loses_power) {
    drop();
    submitted_.clear();
    if (loses_power) kept_ = durable_;
    for (const auto& [row, end] : written_) {
      if (!loses_power) kept_.insert(row);
    }
    written_.clear();
  }

 private:
  static constexpr VirtualTime::Duration retry_time = std::chrono::seconds(1);

  static std::filesystem::path input_file(const std::filesystem::path& path,
                                          const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // The line of each row when nothing happens and nothing is beside it.
  void run_undisturbed(engine::Engine& engine) {
    batch::DoneRows done(input_.rows(), {});
    batch::JobOptions options;
    static_cast<batch::RowOptions&>(options) = options_;
    options.scheduler.kept_max = 0;
    batch::Job job(engine, input_, done, options,
                   [&](std::string_view line) { lines_.emplace(line); });
    while (job.step()) {
    }
    if (lines_.size() != input_.rows()) violation_("an undisturbed batch has lost rows");
  }

  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const std::system_error&) {
      fail();
    } catch (const std::exception& error) {
      violation_(std::string("the batch: ") + error.what());
    }
  }

  // What the journal has lost is computed again, by a job that begins with what it has.
  void fail() {
    drop();
    for (const std::uint64_t number : std::exchange(submitted_, {})) cancel_(number);
    written_.clear();
    time_.at(retry_time, [this] { open(); });
  }

  void drop() {
    next_.reset();
    rows_.reset();
    done_.reset();
    journal_.reset();
  }

  void open() {
    attempt([&] {
      journal_.emplace(path_, disk_, batch::ScanCheck(), 0600);
      check_kept();
      journal_->go_on();
      journal_->sync_if_due(time_.now());
      for (const batch::ResultFacts& facts : journal_->scan().found) kept_.insert(facts.row);
      durable_ = kept_;
      size_ = journal_->scan().whole_bytes;
      done_.emplace(input_.rows(), batch::Shard(), journal_->scan().found);
      rows_.emplace(tokenizer_, input_, *done_, options_,
                    [this](std::string_view line) { append(line); });
      feed();
    });
  }

  // Nothing that was durable is lost, nothing is there twice, and nothing else is there.
  void check_kept() {
    if (journal_->scan().verdict == batch::JournalVerdict::foreign) {
      return violation_("the journal is no longer known as one");
    }
    std::set<std::uint64_t> found;
    journal_->read([&](const batch::ResultFacts& facts, std::string_view line) {
      if (!found.insert(facts.row).second) violation_("a row is in the journal twice");
      if (!lines_.contains(std::string(line))) {
        violation_("the journal has another line than an undisturbed run: " + std::string(line));
      }
    });
    for (const std::uint64_t row : kept_) {
      if (!found.contains(row)) violation_("a durable row is lost: " + std::to_string(row));
    }
  }

  void append(std::string_view line) {
    if (!lines_.contains(std::string(line))) {
      violation_("a row has another result than in an undisturbed run: " + std::string(line));
    }
    journal_->append(line, time_.now());
    size_ += line.size();
    ++lines_written_;
    const auto facts = batch::read_result(line.substr(0, line.size() - 1));
    if (!facts) return violation_("a result cannot be read again");
    written_.emplace_back(facts->row, size_);
  }

  template <class Work>
  void sync_with(const Work& work) {
    work();
    std::erase_if(written_, [this](const auto& line) {
      const bool is_durable = line.second <= journal_->durable_bytes();
      if (is_durable) {
        kept_.insert(line.first);
        durable_.insert(line.first);
      }
      return is_durable;
    });
  }

  void pause() {
    time_.at(retry_time, [this] { feed(); });
  }

  void feed() {
    if (!rows_ || is_complete_) return;
    attempt([&] {
      while (submitted_.size() < texts_max_) {
        if (!next_) next_ = rows_->next();
        if (!next_) break;
        const std::optional<std::uint64_t> number = submit_(*next_);
        if (!number) return pause();
        submitted_.insert(*number);
        next_.reset();
      }
      if (!done_->is_complete()) return;
      sync_with([&] { journal_->sync(); });
      is_complete_ = true;
    });
  }

  const tokenizer::Tokenizer& tokenizer_;
  std::filesystem::path path_;
  batch::Input input_;
  SimulatedDisk& disk_;
  VirtualTime& time_;
  Violation violation_;
  batch::RowOptions options_;
  std::set<std::string> lines_;  // of an undisturbed run
  Submit submit_;
  Cancel cancel_;
  std::size_t texts_max_ = 1;
  std::set<std::uint64_t> submitted_;
  std::optional<batch::Journal> journal_;
  std::optional<batch::DoneRows> done_;
  std::optional<batch::JobRows> rows_;
  std::optional<rows::Task> next_;
  std::uint64_t size_ = 0;  // of the journal
  std::vector<std::pair<std::uint64_t, std::uint64_t>>
      written_;                             // rows, and the ends of their lines
  std::set<std::uint64_t> durable_, kept_;  // rows that a power loss, or a kill, must not take
  std::uint64_t lines_written_ = 0;
  bool is_complete_ = false;
};

// What clients keep on a server: files, and batches that have ended or not.
class SimulatedStores {
 public:
  SimulatedStores(std::filesystem::path files, std::filesystem::path batches,
                  SimulatedDisk& files_disk, SimulatedDisk& batches_disk, std::uint64_t seed,
                  Violation violation)
      : files_path_(std::move(files)),
        batches_path_(std::move(batches)),
        files_disk_(files_disk),
        batches_disk_(batches_disk),
        random_(seed),
        violation_(std::move(violation)) {}

  // Returns false where the disk does not let the server begin.
  bool begin() {
    try {
      files_.emplace(files_path_, bytes_max, files_disk_);
      batches_.emplace(batches_path_, batches_disk_);
    } catch (const std::system_error&) {
      return false;
    }
    check();
    return true;
  }
  void end() {
    files_.reset();
    batches_.reset();
  }

  // A client does something; what it is told is noted.
  void act() {
    if (!files_ || !batches_) return;
    try {
      switch (random_() % 4) {
        case 0:
        case 1:
          return upload();
        case 2:
          return create_or_end();
        default:
          return remove();
      }
    } catch (const http::ApiError&) {
    } catch (const std::system_error&) {
    }
  }

  // All that was told is there, and what is there is whole.
  void check() {
    for (const auto& [id, content] : told_files_) {
      const auto file = files_->find(id);
      if (!file || test::content(files_->path_of(*file)) != content) {
        violation_("a file is lost that a client was told of: " + id);
      }
    }
    for (const http::StoredFile& file : files_->list()) {
      const std::string content = test::content(files_->path_of(file));
      if (!begun_files_.contains(file.id)) {
        violation_("a file is back whose end a client was told of: " + file.id);
      } else if (content != begun_files_[file.id]) {
        violation_("a file is not whole: " + file.id + " has " + std::to_string(content.size()) +
                   " bytes of " + std::to_string(begun_files_[file.id].size()));
      }
    }
    for (const auto& [id, is_final] : told_batches_) {
      const auto batch = batches_->find(id);
      if (!batch) {
        violation_("a batch is lost that a client was told of");
      } else if (is_final && !http::is_final(*batch)) {
        violation_("the end of a batch is lost that a client was told of");
      }
    }
  }

 private:
  static constexpr std::uint64_t bytes_max = 80'000;

  void upload() {
    const std::string id = "file-" + std::to_string(++uploads_);
    std::string content(random_() % 3000, 'x');
    for (char& c : content) c = static_cast<char>(random_());
    begun_files_[id] = content;
    const auto upload = files_->begin(id);
    for (std::size_t at = 0; at < content.size();) {
      const std::size_t bytes = 1 + random_() % (content.size() - at);
      upload->write(std::string_view(content).substr(at, bytes));
      at += bytes;
      if (random_() % 16 == 0) return;  // the client has gone
    }
    upload->commit("input.jsonl", "batch");
    told_files_[id] = content;
  }
  void create_or_end() {
    if (told_batches_.empty() || random_() % 2 == 0) {
      const http::BatchJson batch = batches_->create({{"input_file_id", "file-1"},
                                                      {"endpoint", "/v1/completions"},
                                                      {"completion_window", "24h"}},
                                                     "fake");
      told_batches_.emplace_back(batch.at("id").get<std::string>(), false);
      return;
    }
    auto& [id, is_final] = told_batches_[random_() % told_batches_.size()];
    batches_->set_status(id, random_() % 2 == 0 ? "completed" : "in_progress");
    is_final = http::is_final(*batches_->find(id));
  }
  void remove() {
    if (told_files_.empty()) return;
    const std::string id =
        std::next(told_files_.begin(), static_cast<std::ptrdiff_t>(random_() % told_files_.size()))
            ->first;
    const auto file = files_->find(id);
    told_files_.erase(id);  // what comes of it is not told before it is removed
    files_->remove(*file);
    begun_files_.erase(id);
  }

  std::filesystem::path files_path_, batches_path_;
  SimulatedDisk& files_disk_;
  SimulatedDisk& batches_disk_;
  std::mt19937_64 random_;
  Violation violation_;
  std::optional<http::FileStore> files_;
  std::optional<http::BatchStore> batches_;
  std::uint64_t uploads_ = 0;
  std::map<std::string, std::string> begun_files_, told_files_;  // their contents, by id
  std::vector<std::pair<std::string, bool>> told_batches_;       // and whether they have ended
};

}  // namespace sluice::test
