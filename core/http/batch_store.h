// The batches of clients, in a folder: FOLDER/ID.json is the batch as the API tells it, and while
// it runs FOLDER/ID.jsonl is the journal of its results (core/batch/journal.h).
//
// Threads: any; the members lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {

// A batch in OpenAI's form. Its "status" is "validating", "in_progress", "finalizing", "completed",
// "failed", "cancelling" or "cancelled".
using BatchJson = nlohmann::ordered_json;

bool is_final(const BatchJson& batch);

class BatchStore {
 public:
  static constexpr std::size_t batches_max = 10'000;

  // Makes the folder, and reads the batches that are there. Throws std::system_error.
  explicit BatchStore(std::filesystem::path folder);

  // Checks the body of a request, and keeps the batch durably. Throws ApiError, and
  // std::system_error. `model` is noted in it.
  BatchJson create(const nlohmann::ordered_json& body, const std::string& model);

  std::optional<BatchJson> find(std::string_view id) const;
  std::vector<BatchJson> list() const;  // newest first
  // The oldest batch that has not ended.
  std::optional<std::string> next() const;

  // Changes the status and notes the time of that, durably. Does nothing when the batch has ended.
  // Other members are set to those of `changes`.
  void set_status(const std::string& id, std::string_view status,
                  const nlohmann::ordered_json& changes = nlohmann::ordered_json::object());

  // Until the next change of the status this is kept in memory only.
  void set_counts(const std::string& id, std::uint64_t total, std::uint64_t completed,
                  std::uint64_t failed);

  std::filesystem::path journal_of(const std::string& id) const {
    return folder_ / (id + ".jsonl");
  }

 private:
  void write(const BatchJson& batch) const;

  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::map<std::string, BatchJson, std::less<>> batches_;  // guarded by mutex_
};

}  // namespace sluice::http
