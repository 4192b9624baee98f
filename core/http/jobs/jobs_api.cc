#include "core/http/jobs/jobs_api.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/error.h"
#include "core/http/jobs/list_query.h"
#include "core/http/jobs/multipart.h"
#include "core/http/transport/error.h"
#include "core/rows/request.h"
#include "core/rows/row_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

// As in OpenAI's API.
constexpr std::size_t listed_files_max = 10'000;
constexpr std::size_t listed_batches_max = 100;
constexpr std::size_t listed_batches_default = 20;

Response json_response(const ordered_json& json) {
  return {.body = rows::json_text(json)};
}

// One item more than were asked for says that there are more. The items go into the text one by
// one, since JSON values take several times as much memory.
template <class Item, class ToJson>
Response list_response(std::vector<Item> items, std::size_t limit, ToJson to_json) {
  const bool has_more = items.size() > limit;
  if (has_more) items.pop_back();
  Response response{.body = R"({"object":"list","data":[)"};
  ordered_json end = {{"first_id", nullptr}, {"last_id", nullptr}, {"has_more", has_more}};
  for (const Item& item : items) {
    const ordered_json json = to_json(item);
    const bool is_first = &item == &items.front();
    if (is_first) end["first_id"] = json["id"];
    end["last_id"] = json["id"];
    response.body += (is_first ? "" : ",") + rows::json_text(json);
  }
  response.body += "]," + rows::json_text(end).substr(1);
  return response;
}

}  // namespace

// Two servers that run the same batches would both give results.
class JobsApi::Lock {
 public:
  Lock(const std::filesystem::path& folder, files::SystemCalls& system) {
    files::make_private_folder(folder, system);
    const std::string path = (folder / "lock").string();
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    file_ = base::Descriptor(::open(path.c_str(), flags, 0600));
    if (!file_.is_open()) {
      throw std::system_error(errno, std::generic_category(), "cannot open " + path);
    }
    if (::flock(file_.number(), LOCK_EX | LOCK_NB) == 0) return;
    throw UsageError(
        fmt::format("--data {}: another server uses this folder; name another", folder.string()));
  }

 private:
  base::Descriptor file_;
};

class JobsApi::Upload final : public BodySink {
 public:
  Upload(FileStore& files, std::string_view content_type)
      : upload_(files.begin(random_id("file-"))),
        reader_(content_type, {"purpose"},
                [this](std::string_view piece) { upload_->write(piece); }) {}

  void take(std::string_view piece) override { reader_.take(piece); }

  Response end() {
    if (!reader_.is_complete()) throw ApiError(400, "the body ends in the middle of a part");
    if (!reader_.has_file()) throw ApiError(400, "\"file\" is missing");
    const auto purpose = reader_.fields().find("purpose");
    if (purpose == reader_.fields().end()) throw ApiError(400, "\"purpose\" is missing");
    return json_response(upload_->commit(reader_.file_name(), purpose->second).json());
  }

 private:
  std::unique_ptr<FileStore::Upload> upload_;
  MultipartReader reader_;
};

JobsApi::JobsApi(const std::filesystem::path& folder, std::uint64_t bytes_max,
                 files::SystemCalls& system)
    : system_(system),
      lock_(std::make_unique<Lock>(folder, system)),
      files_(folder / "files", bytes_max, system),
      batches_(folder / "batches", system) {}

JobsApi::~JobsApi() = default;

void JobsApi::start(serve::Service& service, BatchSettings settings) {
  const base::MutexLock lock(mutex_);
  model_name_ = settings.model_name;
  runner_ = std::make_unique<BatchRunner>(batches_, files_, service, std::move(settings), system_);
}

void JobsApi::stop() {
  const base::MutexLock lock(mutex_);
  runner_.reset();
}

BatchRunner& JobsApi::runner() {
  if (!runner_) throw ApiError(503, "batches do not run now: try again later", "", 1);
  return *runner_;
}

std::shared_ptr<BodySink> JobsApi::begin_upload(const RequestHead& head) {
  return std::make_shared<Upload>(files_, head.field("Content-Type"));
}

Response JobsApi::end_upload(BodySink& sink) {
  return dynamic_cast<Upload&>(sink).end();
}

StoredFile JobsApi::found(std::string_view id) const {
  auto file = files_.find(id);
  if (!file) throw ApiError(404, "there is no such file");
  return *file;
}

Response JobsApi::list_files(std::string_view query) const {
  ListQuery asked = read_list_query(query, listed_files_max, listed_files_max);
  const std::size_t limit = asked.limit++;
  return list_response(files_.list(asked), limit,
                       [](const StoredFile& file) { return file.json(); });
}

Response JobsApi::file(std::string_view id) const {
  return json_response(found(id).json());
}

Response JobsApi::file_content(std::string_view id) const {
  return {.type = "application/octet-stream", .body = {}, .file = files_.open(found(id))};
}

Response JobsApi::delete_file(std::string_view id) {
  const StoredFile file = found(id);
  files_.remove(file);
  return json_response({{"id", file.id}, {"object", "file"}, {"deleted", true}});
}

Response JobsApi::create_batch(std::string_view body) {
  ordered_json json;
  try {
    json = rows::parse_row_object(body);
  } catch (const rows::BadRow& bad) {
    throw ApiError(400, bad.what());
  }
  const base::MutexLock lock(mutex_);
  BatchRunner& running = runner();
  const auto file = json.find("input_file_id");
  if (file != json.end() && file->is_string() && !files_.find(file->get<std::string>())) {
    throw ApiError(400, "\"input_file_id\" names a file that is not there");
  }
  const BatchJson created = batches_.create(json, model_name_);
  running.look();
  return json_response(created);
}

Response JobsApi::list_batches(std::string_view query) const {
  ListQuery asked = read_list_query(query, listed_batches_default, listed_batches_max);
  const std::size_t limit = asked.limit++;
  return list_response(batches_.list(asked), limit, [](const BatchJson& one) { return one; });
}

Response JobsApi::batch(std::string_view id) const {
  const auto one = batches_.find(id);
  if (!one) throw ApiError(404, "there is no such batch");
  return json_response(*one);
}

Response JobsApi::cancel_batch(std::string_view id) {
  const base::MutexLock lock(mutex_);
  const auto one = batches_.find(id);
  if (!one) throw ApiError(404, "there is no such batch");
  if (is_final(*one)) throw ApiError(409, "the batch has ended");
  runner().cancel(std::string(id));
  return batch(id);
}

}  // namespace sluice::http
