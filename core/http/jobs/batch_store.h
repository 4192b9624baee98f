// The batches of clients, in a folder: FOLDER/ID.json is the batch as the API tells it, and while
// it runs FOLDER/ID.jsonl is the journal of its results (core/batch/journal.h), and ID.jsonl.state
// says what it was begun with (core/batch/job_state.h).
//
// What was told to a client once stays true: an end is on the disk before it is told. All other
// changes hold at once, and are lost in a crash where the disk has not taken them; whoever goes on
// makes them again.
//
// Threads: any; the members lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "core/files/system_calls.h"
#include "core/http/jobs/list_query.h"

namespace sluice::http {

// A batch in OpenAI's form. Its "status" is "validating", "in_progress", "finalizing", "completed",
// "failed", "cancelling" or "cancelled".
using BatchJson = nlohmann::ordered_json;

bool is_final(const BatchJson& batch);

// The member "errors" of a batch.
BatchJson batch_errors(std::string_view code, const std::string& message);

class BatchStore {
 public:
  // Of the records that are known at a time (json_bytes()): about 1,000 batches, or 200 with all
  // the metadata that they may have. One more makes the store forget those that have ended and were
  // made first; the files of their results stay.
  static constexpr std::uint64_t records_bytes_max = std::uint64_t{4} << 20;
  // The memory that they take, with what lies between them. Measured, rounded up.
  static constexpr std::uint64_t memory_bytes_max = 3 * records_bytes_max;

  // Makes the folder, and reads the batches that are there; what is no record of one is left aside.
  // Throws std::system_error.
  explicit BatchStore(std::filesystem::path folder, files::SystemCalls& system = files::kernel());

  // Checks the body of a request, and keeps the batch durably. Throws ApiError. `model` is noted in
  // it.
  BatchJson create(const nlohmann::ordered_json& body, const std::string& model);

  std::optional<BatchJson> find(std::string_view id) const;
  // Newest first, unless it is asked for otherwise. Throws ApiError (400) when there is no batch
  // after which to begin.
  std::vector<BatchJson> list(const ListQuery& query = {}) const;
  std::vector<std::string> not_ended() const;  // ids, oldest first

  // Changes the status and notes the time of that. Other members are set to those of `changes`.
  // Does nothing and returns false when the batch has ended, or would go on although it is being
  // cancelled ("in_progress"). Throws std::system_error when the disk has not taken it.
  bool set_status(const std::string& id, std::string_view status,
                  const nlohmann::ordered_json& changes = nlohmann::ordered_json::object());

  // Why the batch does not go on at present; empty: it does. This and the counts are kept in memory
  // only, until the next change of the status.
  void set_pause(const std::string& id, const std::string& reason);
  void set_counts(const std::string& id, std::uint64_t total, std::uint64_t completed,
                  std::uint64_t failed);

  std::filesystem::path journal_of(const std::string& id) const {
    return folder_ / (id + ".jsonl");
  }

 private:
  std::vector<std::string> ids(bool is_ascending) const SLUICE_REQUIRES(mutex_);
  void write(const BatchJson& batch) const;
  void make_room(std::uint64_t bytes) SLUICE_REQUIRES(mutex_);

  std::filesystem::path folder_;
  files::SystemCalls& system_;
  mutable base::Mutex mutex_;
  std::map<std::string, BatchJson, std::less<>> batches_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::http
