#include "core/http/jobs/batch_store.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <utility>

#include "core/files/durable_file.h"
#include "core/files/small_file.h"
#include "core/http/jobs/file_store.h"
#include "core/http/transport/error.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t record_bytes_max = std::size_t{256} << 10;
constexpr JsonLimits record_limits{
    .what = "record", .values_max = 10'000, .members_max = 100, .depth_max = 16};
constexpr std::size_t metadata_members_max = 16;
constexpr std::size_t metadata_bytes_max = 512;

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::time(nullptr));
}

std::string text_in(const ordered_json& body, const char* name) {
  const auto at = body.find(name);
  if (at == body.end()) throw ApiError(400, fmt::format("\"{}\" is missing", name));
  if (!at->is_string()) throw ApiError(400, fmt::format("\"{}\" must be a string", name));
  return at->get<std::string>();
}

ordered_json metadata_in(const ordered_json& body) {
  const auto at = body.find("metadata");
  if (at == body.end() || at->is_null()) return nullptr;
  const bool is_fine =
      at->is_object() && at->size() <= metadata_members_max &&
      std::ranges::all_of(at->items(), [](const auto& item) {
        return item.key().size() <= metadata_bytes_max && item.value().is_string() &&
               item.value().template get_ref<const std::string&>().size() <= metadata_bytes_max;
      });
  if (!is_fine) throw ApiError(400, "\"metadata\" must be an object of at most 16 short strings");
  return *at;
}

// Whether it has the members that are relied on.
bool is_record(const BatchJson& batch, const std::string& id) {
  if (!batch.is_object()) return false;
  const auto has_text = [&](const char* name) {
    const auto at = batch.find(name);
    return at != batch.end() && at->is_string();
  };
  const auto has_count = [](const BatchJson& object, const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_number_unsigned();
  };
  const auto counts = batch.find("request_counts");
  return has_text("id") && batch["id"].get_ref<const std::string&>() == id && has_text("status") &&
         has_text("input_file_id") && has_count(batch, "created_at") &&
         (has_text("model") || !batch.contains("model")) &&
         (counts == batch.end() || has_count(*counts, "total"));
}

bool is_end(std::string_view status) {
  return status == "completed" || status == "failed" || status == "cancelled";
}

}  // namespace

bool is_final(const BatchJson& batch) {
  return is_end(batch.at("status").get_ref<const std::string&>());
}

BatchJson batch_errors(std::string_view code, const std::string& message) {
  return {{"object", "list"}, {"data", BatchJson::array({{{"code", code}, {"message", message}}})}};
}

BatchStore::BatchStore(std::filesystem::path folder, files::SystemCalls& system)
    : folder_(std::move(folder)), system_(system) {
  files::make_private_folder(folder_, system_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != ".json") continue;
    try {
      BatchJson batch =
          parse_limited_json(files::read_small_file(entry.path(), record_bytes_max), record_limits)
              .value;
      const std::string id = entry.path().stem().string();
      if (is_record(batch, id)) batches_.emplace(id, std::move(batch));
    } catch (const JsonError&) {  // no record
    }
  }
}

void BatchStore::write(const BatchJson& batch) const {
  files::DurableFile file(folder_ / (batch.at("id").get<std::string>() + ".json"), {.mode = 0600},
                          system_);
  file.write(batch.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  file.commit();
}

BatchJson BatchStore::create(const ordered_json& body, const std::string& model) {
  for (const auto& item : body.items()) {
    const bool is_known = item.key() == "input_file_id" || item.key() == "endpoint" ||
                          item.key() == "completion_window" || item.key() == "metadata";
    if (!is_known)
      throw ApiError(400, fmt::format("\"{}\" is unknown", text::escaped(item.key(), 100)));
  }
  const std::string endpoint = text_in(body, "endpoint");
  if (endpoint != "/v1/completions" && endpoint != "/v1/chat/completions") {
    throw ApiError(400, "\"endpoint\" must be \"/v1/completions\" or \"/v1/chat/completions\"");
  }
  BatchJson batch = {{"id", random_id("batch_")},
                     {"object", "batch"},
                     {"endpoint", endpoint},
                     {"errors", nullptr},
                     {"input_file_id", text_in(body, "input_file_id")},
                     {"completion_window", text_in(body, "completion_window")},
                     {"status", "validating"},
                     {"output_file_id", nullptr},
                     {"error_file_id", nullptr},
                     {"created_at", now()}};
  for (const char* status : {"in_progress", "expires", "finalizing", "completed", "failed",
                             "expired", "cancelling", "cancelled"}) {
    batch[fmt::format("{}_at", status)] = nullptr;
  }
  batch["request_counts"] = {{"total", 0}, {"completed", 0}, {"failed", 0}};
  batch["metadata"] = metadata_in(body);
  batch["model"] = model;
  const base::MutexLock lock(mutex_);
  try {
    make_room(json_bytes(batch));
    write(batch);
  } catch (const std::system_error& error) {
    throw storage_error(error);
  }
  return batches_[batch["id"]] = batch;
}

// Forgets batches that have ended, the oldest first, until so many bytes more may be held.
void BatchStore::make_room(std::uint64_t bytes) {
  for (const auto& [id, batch] : batches_) bytes += json_bytes(batch);
  if (bytes <= records_bytes_max) return;
  for (const std::string& id : ids(true)) {
    const auto oldest = batches_.find(id);
    if (!is_final(oldest->second)) continue;
    bytes -= json_bytes(oldest->second);
    files::remove_file(folder_ / (id + ".json"), system_);
    batches_.erase(oldest);
    if (bytes <= records_bytes_max) return;
  }
  throw ApiError(507, fmt::format("the server has {} batches that have not ended, which is the "
                                  "most: cancel some",
                                  batches_.size()));
}

std::optional<BatchJson> BatchStore::find(std::string_view id) const {
  const base::MutexLock lock(mutex_);
  const auto at = batches_.find(id);
  return at == batches_.end() ? std::nullopt : std::optional(at->second);
}

// By the time at which they were made.
std::vector<std::string> BatchStore::ids(bool is_ascending) const {
  std::vector<std::pair<std::uint64_t, std::string>> keys;
  keys.reserve(batches_.size());
  for (const auto& [id, batch] : batches_) {
    keys.emplace_back(batch.at("created_at").get<std::uint64_t>(), id);
  }
  std::ranges::sort(keys);
  if (!is_ascending) std::ranges::reverse(keys);
  std::vector<std::string> ids;
  ids.reserve(keys.size());
  for (auto& [created, id] : keys) ids.push_back(std::move(id));
  return ids;
}

std::vector<BatchJson> BatchStore::list(const ListQuery& query) const {
  const base::MutexLock lock(mutex_);
  const std::vector<std::string> all = ids(query.is_ascending);
  auto id = all.begin();
  if (!query.after.empty()) {
    id = std::ranges::find(all, query.after);
    if (id == all.end()) throw ApiError(400, "\"after\" names no batch that is there");
    ++id;
  }
  std::vector<BatchJson> list;
  for (; id != all.end() && list.size() < query.limit; ++id) list.push_back(batches_.at(*id));
  return list;
}

std::vector<std::string> BatchStore::not_ended() const {
  const base::MutexLock lock(mutex_);
  std::vector<std::string> left;
  for (const std::string& id : ids(true)) {
    if (!is_final(batches_.at(id))) left.push_back(id);
  }
  return left;
}

bool BatchStore::set_status(const std::string& id, std::string_view status,
                            const ordered_json& changes) {
  const base::MutexLock lock(mutex_);
  const auto at = batches_.find(id);
  if (at == batches_.end() || is_final(at->second)) return false;
  if (status == "in_progress" && at->second.at("status") == "cancelling") return false;
  BatchJson batch = at->second;
  batch["status"] = status;
  batch[fmt::format("{}_at", status)] = now();
  batch.update(changes);
  if (!is_end(status)) at->second = batch;
  write(batch);
  at->second = std::move(batch);
  return true;
}

void BatchStore::set_pause(const std::string& id, const std::string& reason) {
  const base::MutexLock lock(mutex_);
  const auto at = batches_.find(id);
  if (at == batches_.end() || is_final(at->second)) return;
  at->second["errors"] = reason.empty() ? BatchJson() : batch_errors("paused", reason);
}

void BatchStore::set_counts(const std::string& id, std::uint64_t total, std::uint64_t completed,
                            std::uint64_t failed) {
  const base::MutexLock lock(mutex_);
  const auto at = batches_.find(id);
  if (at == batches_.end()) return;
  at->second["request_counts"] = {{"total", total}, {"completed", completed}, {"failed", failed}};
}

}  // namespace sluice::http
