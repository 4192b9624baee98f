// Files and batches: uploads in any pieces, hostile forms, and batches whose every row has its
// result once, whatever ends the server.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <tuple>

#include "base/descriptor.h"
#include "core/batch/job.h"
#include "core/http/api/api_error.h"
#include "core/http/jobs/jobs_api.h"
#include "core/http/jobs/multipart.h"
#include "core/text/limited_json.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
#include "tests/recorded_calls.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::http;
using namespace sluice::rows;
using namespace sluice::serve;
using namespace std::chrono_literals;
using nlohmann::json;
using sluice::test::ByteTokenizer;
using sluice::test::FakeEngine;
using sluice::test::TemporaryFolder;

const std::string boundary_type = "multipart/form-data; boundary=\"a-b\"";

std::string form_of(const std::string& content, const std::string& purpose = "batch") {
  return "--a-b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose +
         "\r\n--a-b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in "
         "\\\"x\\\".jsonl\"\r\n"
         "Content-Type: application/json\r\n\r\n" +
         content + "\r\n--a-b--\r\n";
}

unsigned status_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ApiError& error) {
    return error.status;
  }
  return 200;
}

Service::OpenEngine fake(std::atomic<bool>* is_closed = nullptr) {
  return [is_closed](std::function<void()> stop_check) {
    auto engine = std::make_unique<FakeEngine>(
        sluice::test::FakeLimits{.columns = 16, .logits = 8, .pages = 200});
    engine->stop_check = [is_closed, stop_check = std::move(stop_check)] {
      while (is_closed != nullptr && *is_closed) {
        stop_check();
        std::this_thread::sleep_for(1ms);
      }
      stop_check();
    };
    return engine;
  };
}

// The same engine, which stops when it has been asked `left` times whether to go on.
Service::OpenEngine fake_for(std::atomic<int>& left) {
  return [&left](std::function<void()> stop_check) {
    auto engine = std::make_unique<FakeEngine>(
        sluice::test::FakeLimits{.columns = 16, .logits = 8, .pages = 200});
    engine->stop_check = [&left, stop_check = std::move(stop_check)] {
      for (; left <= 0; std::this_thread::sleep_for(1ms)) stop_check();
      --left;
      stop_check();
    };
    return engine;
  };
}

BatchSettings settings() {
  BatchSettings settings;
  settings.task.positions_max = 300;
  settings.task.defaults.tokens_max = 20;
  settings.model_name = "fake";
  settings.texts_max = 5;
  settings.retry_pause = 1ms;
  return settings;
}

json json_of(const Response& response) {
  return json::parse(response.body);
}

std::string content_of(const Response& response) {
  std::string text(response.file.bytes, '\0');
  REQUIRE(::pread(response.file.file->number(), text.data(), text.size(), 0) ==
          static_cast<ssize_t>(text.size()));
  return text;
}

std::string upload(JobsApi& jobs, const std::string& content) {
  RequestHead head;
  head.fields.push_back({"Content-Type", boundary_type});
  const auto sink = jobs.begin_upload(head);
  sink->take(form_of(content));
  return json_of(JobsApi::end_upload(*sink)).at("id");
}

std::string begin_batch(JobsApi& jobs, const std::string& file) {
  return json_of(jobs.create_batch(json({{"input_file_id", file},
                                         {"endpoint", "/v1/completions"},
                                         {"completion_window", "24h"}})
                                       .dump()))
      .at("id");
}

// A disk that is full from some change on, until there is room again.
class FullDisk : public sluice::files::SystemCalls {
 public:
  // The next `changes` changes still succeed.
  void fill_after(int changes) { left_ = changes; }
  void make_room() { left_ = std::numeric_limits<int>::max(); }
  bool has_failed() const { return has_failed_; }

  int open(const char* path, int flags, mode_t mode) override {
    if ((flags & O_CREAT) != 0 && !std::filesystem::exists(path) && !takes()) return -1;
    return SystemCalls::open(path, flags, mode);
  }
  int mkostemp(char* pattern, int flags) override {
    return takes() ? SystemCalls::mkostemp(pattern, flags) : -1;
  }
  int fallocate(int, off_t, off_t) override { return takes() ? 0 : -1; }
  ssize_t write(int descriptor, const void* data, std::size_t bytes) override {
    return takes() ? SystemCalls::write(descriptor, data, bytes) : -1;
  }
  // Fills the disk with the first half.
  ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t at) override {
    if (takes()) return SystemCalls::pwrite(descriptor, data, bytes, at);
    if (has_torn_.exchange(true)) return -1;
    return SystemCalls::pwrite(descriptor, data, bytes / 2 + 1, at);
  }
  int fsync(int descriptor) override { return takes() ? SystemCalls::fsync(descriptor) : -1; }
  int fdatasync(int descriptor) override {
    return takes() ? SystemCalls::fdatasync(descriptor) : -1;
  }
  int rename(const char* from, const char* to) override {
    return takes() ? SystemCalls::rename(from, to) : -1;
  }
  int mkdir(const char* path, mode_t mode) override {
    return takes() ? SystemCalls::mkdir(path, mode) : -1;
  }

 private:
  bool takes() {
    if (left_-- > 0) return true;
    left_ = 0;
    has_failed_ = true;
    errno = ENOSPC;
    return false;
  }
  std::atomic<int> left_ = std::numeric_limits<int>::max();
  std::atomic<bool> has_failed_ = false;
  std::atomic<bool> has_torn_ = false;
};

// Why the batch does not go on; empty: it does.
std::string pause_of(const json& batch) {
  if (batch["errors"].is_null() || is_final(batch)) return "";
  const json& error = batch["errors"]["data"][0];
  CHECK(error["code"].get<std::string>() == "paused");
  return error["message"];
}

// Returns once the batch has paused or ended.
json wait_for_pause(JobsApi& jobs, const std::string& id) {
  for (int i = 0; i < 60'000; ++i) {
    json batch = json_of(jobs.batch(id));
    if (is_final(batch) || !pause_of(batch).empty()) return batch;
    std::this_thread::sleep_for(1ms);
  }
  throw std::runtime_error("the batch neither pauses nor ends");
}

json wait_for_end(JobsApi& jobs, const std::string& id) {
  for (int i = 0; i < 60'000; ++i) {
    json batch = json_of(jobs.batch(id));
    if (is_final(batch)) return batch;
    std::this_thread::sleep_for(1ms);
  }
  throw std::runtime_error("the batch does not end");
}

std::string row(int number, const json& body) {
  return json({{"custom_id", "row-" + std::to_string(number)},
               {"method", "POST"},
               {"url", "/v1/completions"},
               {"body", body}})
             .dump() +
         "\n";
}

std::string random_rows(std::mt19937_64& random, int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    json body = {{"prompt", "p" + std::string(random() % 60, 'x')}, {"max_tokens", random() % 25}};
    if (random() % 4 == 0) body["n"] = 3;
    if (random() % 6 == 0) body["logprobs"] = 2;
    if (random() % 8 == 0) body["wishes"] = 1;
    rows += row(i, body);
  }
  return rows;
}

// By row: what `sluice batch` gives.
std::map<std::string, json> batch_lines(const std::string& rows) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "in") << rows;
  const sluice::batch::Input input(folder.path() / "in");
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 200});
  sluice::batch::JobOptions options;
  options.task = settings().task;
  options.model_name = "fake";
  sluice::batch::DoneRows done(input.rows(), {});
  std::map<std::string, json> lines;
  sluice::batch::Job job(engine, input, done, options, [&](std::string_view line) {
    const json result = json::parse(line);
    lines[result["custom_id"]] = result;
  });
  while (job.step()) {
  }
  return lines;
}

// The limit of a store that takes so many files with so many bytes together.
std::uint64_t room_for(std::uint64_t files, std::uint64_t bytes) {
  constexpr std::uint64_t description_bytes = 200;
  return files * (FileStore::file_overhead_bytes + description_bytes) + bytes;
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat facts {};
  REQUIRE(::stat(path.c_str(), &facts) == 0);
  return facts.st_mode & 0777U;
}

void add_lines(const JobsApi& jobs, const json& file, std::map<std::string, json>& lines) {
  if (file.is_null()) return;
  std::istringstream in(content_of(jobs.file_content(file.get<std::string>())));
  for (std::string line; std::getline(in, line);) {
    const json result = json::parse(line);
    CHECK(lines.emplace(result["custom_id"], result).second);  // once
  }
}

// A server of batches whose engine makes no step until it is opened.
struct ClosedServer {
  ClosedServer() {
    service.wait_until_ready();
    jobs.start(service, settings());
  }

  TemporaryFolder folder;
  JobsApi jobs{folder.path(), 1 << 20};
  std::atomic<bool> is_closed = true;
  Service service{fake(&is_closed), {.scheduler = {.parallel = 2}, .queue_max = 100}};
};

}  // namespace

TEST_CASE("the disk has removed what is known of a file before its contents go") {
  const TemporaryFolder folder;
  sluice::test::RecordedCalls system;
  FileStore store(folder.path(), room_for(1, 1000), system);
  const auto upload = store.begin("file-1");
  upload->write("text");
  const StoredFile file = upload->commit("a", "batch");
  system.calls.clear();
  store.remove(file);
  const auto place_of = [&](const std::string& call) {
    return std::ranges::find(system.calls, call) - system.calls.begin();
  };
  const auto synchronises = [](const std::string& call) { return call.starts_with("sync "); };
  const auto sync = std::ranges::find_if(system.calls, synchronises) - system.calls.begin();
  CHECK(place_of("unlink file-1.json") < sync);
  CHECK(sync < place_of("unlink file-1"));
  CHECK(system.calls.back() == "unlink file-1");
  CHECK(store.list().empty());
}

TEST_CASE("a form is read the same however its bytes are cut") {
  const std::string content = "a\r\n--a-\r\n--a\r\n-b--\r\nrow\r\n";
  const std::string body = form_of(content);
  for (std::size_t piece = 1; piece < body.size(); ++piece) {
    std::string file;
    MultipartReader reader(boundary_type, {"purpose"},
                           [&](std::string_view bytes) { file += bytes; });
    for (std::size_t at = 0; at < body.size(); at += piece) reader.take(body.substr(at, piece));
    CHECK(reader.is_complete());
    CHECK(file == content);
    CHECK(reader.file_name() == "in \"x\".jsonl");
    CHECK(reader.fields().at("purpose") == "batch");
  }
}

TEST_CASE("a form that is none is refused") {
  const auto ignore = [](std::string_view) {};
  const auto take = [&](const std::string& type, const std::string& body) {
    return status_of([&] { MultipartReader(type, {"purpose", "x"}, ignore).take(body); });
  };
  CHECK(take("application/json", "") == 400);
  CHECK(take("multipart/form-data", "") == 400);
  CHECK(take("multipart/form-data; boundary=", "") == 400);
  const auto status = [&](const std::string& body) { return take(boundary_type, body); };
  CHECK(status(form_of("x")) == 200);
  CHECK(status(std::string(10'000, 'x')) == 400);
  CHECK(status("--a-bxx") == 400);
  CHECK(status("--a-b\r\n" + std::string(10'000, 'x')) == 400);
  CHECK(status("--a-b\r\nX: y\r\n\r\n") == 400);
  CHECK(status("--a-b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n" +
               std::string(10'000, 'x')) == 400);
}

TEST_CASE("damaged forms are refused or read, and nothing worse") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string good = form_of("some content\r\nof two lines");
  for (int i = 0; i < 2000; ++i) {
    std::string body = good;
    for (std::uint64_t changes = 1 + random() % 5; changes != 0; --changes) {
      const std::size_t at = random() % body.size();
      if (random() % 2 == 0) {
        body.erase(at, 1 + random() % 9);
      } else {
        body.insert(at, 1, "\r\n-\";=\0a"[random() % 8]);
      }
      if (body.empty()) body = "-";
    }
    std::size_t bytes = 0;
    try {
      MultipartReader reader(boundary_type, {"purpose"},
                             [&](std::string_view piece) { bytes += piece.size(); });
      while (!body.empty()) {
        const std::size_t piece = 1 + random() % 30;
        reader.take(body.substr(0, piece));
        body.erase(0, piece);
      }
    } catch (const ApiError&) {
    }
    CHECK(bytes <= good.size() + 10);
  }
}

TEST_CASE("files are kept as a whole, listed, read and deleted, within a limit") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), room_for(2, 1000));
  const std::string id = upload(jobs, "hello\n");
  CHECK(json_of(jobs.file(id))["bytes"] == 6);
  CHECK(json_of(jobs.file(id))["filename"] == "in \"x\".jsonl");
  CHECK(content_of(jobs.file_content(id)) == "hello\n");
  CHECK(json_of(jobs.list_files())["data"].size() == 1);
  CHECK(status_of([&] { upload(jobs, std::string(1200, 'x')); }) == 507);
  CHECK(json_of(jobs.list_files())["data"].size() == 1);
  CHECK(json_of(jobs.delete_file(id))["deleted"] == true);
  CHECK(status_of([&] { jobs.file(id); }) == 404);
  for (const char* strange : {"../lock", "..", "/etc/passwd", "", "a.json", "a/b"}) {
    CHECK(status_of([&] { jobs.file(strange); }) == 404);
    CHECK(status_of([&] { jobs.file_content(strange); }) == 404);
  }
  upload(jobs, std::string(1100, 'x'));
}

TEST_CASE("small files and their descriptions count towards the limit") {
  const TemporaryFolder folder;
  const std::uint64_t limit = room_for(3, 0);
  std::vector<std::string> ids;
  {
    JobsApi jobs(folder.path(), limit);
    for (int i = 0; i < 3; ++i) ids.push_back(upload(jobs, "x"));
    CHECK(status_of([&] { upload(jobs, "x"); }) == 507);
  }
  JobsApi jobs(folder.path(), limit);  // counts what is there
  for (int i = 0; i < 20; ++i) {       // nothing is lost when files come and go
    CHECK(status_of([&] { upload(jobs, "x"); }) == 507);
    jobs.delete_file(ids.back());
    ids.back() = upload(jobs, "x");
  }
  // There may be room for the contents and none for the description.
  jobs.delete_file(ids.back());
  CHECK(status_of([&] { upload(jobs, std::string(250, 'x')); }) == 507);
  CHECK(json_of(jobs.list_files())["data"].size() == 2);
  upload(jobs, "x");
}

TEST_CASE("parts that are unknown or too long are refused by name, before they are held") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  // What comes of a body that is sent byte by byte, and after how many.
  const auto problem_of = [&](const std::string& body) -> std::pair<std::string, std::size_t> {
    RequestHead head;
    head.fields.push_back({"Content-Type", boundary_type});
    const auto sink = jobs.begin_upload(head);
    std::size_t sent = 0;
    try {
      for (const char byte : body) {
        ++sent;
        sink->take({&byte, 1});
      }
      JobsApi::end_upload(*sink);
    } catch (const ApiError& error) {
      CHECK(error.status == 400);
      return {error.what(), sent};
    }
    return {"", sent};
  };
  const auto part = [](const std::string& parameters, const std::string& content) {
    return "--a-b\r\nContent-Disposition: form-data; " + parameters + "\r\n\r\n" + content + "\r\n";
  };
  const std::string most(255, 'x'), end = "--a-b--\r\n";
  const auto file = [&](const std::string& name) {
    return part("name=\"file\"; filename=\"" + name + '"', "x");
  };
  CHECK(problem_of(part("name=purpose", most) + file(most) + end).first.empty());
  CHECK(problem_of(part("name=purpose", "batch") + file(most + "x") + end).first ==
        "\"filename\" has more than 255 bytes");
  // Of two names of a part, the last one counts, and a file keeps its own.
  CHECK(problem_of(part("name=purpose", "batch") + file("mine") +
                   "--a-b\r\nContent-Disposition: form-data; name=file; filename=" + most + most +
                   "\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n" + end)
            .first.empty());
  const auto [purpose, purpose_bytes] =
      problem_of(part("name=purpose", std::string(100'000, 'x')) + file("a") + end);
  CHECK(purpose == "\"purpose\" has more than 255 bytes");
  CHECK(purpose_bytes < 1000);
  // A file stays until it is deleted, so nobody is left to believe that it expires.
  const auto [other, other_bytes] =
      problem_of(part("name=\"expires_after[seconds]\"", std::string(100'000, '9')) + end);
  CHECK(other == "\"expires_after[seconds]\" is unknown");
  CHECK(other_bytes < 1000);
  const auto files = json_of(jobs.list_files())["data"];
  REQUIRE(files.size() == 2);
  for (const auto& one : files) CHECK((one["filename"] == "mine" || one["filename"] == most));
}

TEST_CASE("a list is read page by page, each item once and in order") {
  const TemporaryFolder folder;
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<std::pair<int, std::string>> files, batches;  // by their times, some of them equal
  std::filesystem::create_directories(folder.path() / "files");
  std::filesystem::create_directories(folder.path() / "batches");
  for (int i = 0; i < 45; ++i) {
    const int created = static_cast<int>(random() % 20);
    const std::string file = "file-" + std::to_string(random()), batch = "batch_" + file;
    const json description = {{"id", file},
                              {"filename", "a"},
                              {"purpose", i % 3 == 0 ? "user data" : "batch"},
                              {"bytes", 1},
                              {"created_at", created}};
    std::ofstream(folder.path() / "files" / (file + ".json")) << description.dump();
    const json record = {
        {"id", batch}, {"status", "completed"}, {"input_file_id", file}, {"created_at", created}};
    std::ofstream(folder.path() / "batches" / (batch + ".json")) << record.dump();
    if (i % 3 != 0) files.emplace_back(created, file);
    batches.emplace_back(created, batch);
  }
  const JobsApi jobs(folder.path(), 1 << 20);
  using List = Response (JobsApi::*)(std::string_view) const;
  const auto all = [&](List list, const std::string& query, std::size_t limit) {
    std::vector<std::pair<int, std::string>> found;
    std::string after;
    while (true) {
      const json page = json_of((jobs.*list)(query + "&limit=" + std::to_string(limit) +
                                             (after.empty() ? "" : "&after=" + after)));
      for (const json& item : page["data"]) found.emplace_back(item["created_at"], item["id"]);
      CHECK(page["data"].size() <= limit);
      if (!page["has_more"]) return found;
      CHECK(page["data"].size() == limit);
      REQUIRE(found.size() <= 45);
      CHECK(page["first_id"] == page["data"].front()["id"]);
      after = page["last_id"];
    }
  };
  std::ranges::sort(files);
  std::ranges::sort(batches);
  for (const std::size_t limit : {1, 7, 10, 15, 30, 45, 100}) {
    INFO(limit);
    CHECK(all(&JobsApi::list_files, "purpose=batch&order=asc", limit) == files);
  }
  std::ranges::reverse(files);
  std::ranges::reverse(batches);
  for (const std::size_t limit : {1, 7, 10, 15, 30, 45, 100}) {
    INFO(limit);
    CHECK(all(&JobsApi::list_files, "purpose=batch", limit) == files);
    CHECK(all(&JobsApi::list_batches, "x=1", limit) == batches);
  }
  CHECK(all(&JobsApi::list_files, "order=desc", 10).size() == 45);
  CHECK(all(&JobsApi::list_files, "purpose=user%20data", 10).size() == 15);
  CHECK(json_of(jobs.list_files())["data"].size() == 45);
  CHECK(json_of(jobs.list_batches())["data"].size() == 20);  // as in OpenAI's API
  CHECK(json_of(jobs.list_batches())["has_more"] == true);
}

TEST_CASE("a page of a list takes as many reads as it has files") {
  const TemporaryFolder folder;
  const std::filesystem::path files = folder.path() / "files";
  std::filesystem::create_directories(files);
  for (int i = 0; i < 200; ++i) {
    const std::string id = "file-" + std::to_string(i);
    const json description = {{"id", id},
                              {"filename", "a"},
                              {"purpose", i % 2 == 0 ? "batch" : "other"},
                              {"bytes", 1},
                              {"created_at", i}};
    std::ofstream(files / (id + ".json")) << description.dump();
  }
  const JobsApi jobs(folder.path(), 1 << 25);
  const sluice::base::Descriptor watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  REQUIRE(::inotify_add_watch(watch.number(), files.c_str(), IN_OPEN) >= 0);
  const auto opened = [&] {
    std::size_t count = 0;
    alignas(inotify_event) std::array<char, 16384> events{};
    for (ssize_t n = 0; (n = ::read(watch.number(), events.data(), events.size())) > 0;) {
      for (ssize_t at = 0; at < n; ++count) {
        const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    return count;
  };
  const json page = json_of(jobs.list_files("limit=4&purpose=batch&after=file-151"));
  CHECK(page["data"].size() == 4);
  CHECK(page["first_id"] == "file-150");
  CHECK(page["has_more"] == true);
  CHECK(opened() == 6);  // with the file before and the one that makes has_more true
  CHECK(json_of(jobs.list_files("limit=4&purpose=none"))["data"].empty());
  CHECK(opened() == 0);
}

TEST_CASE("a list has the files that were made and not deleted since the start") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  const std::string first = upload(jobs, "a"), second = upload(jobs, "b");
  jobs.delete_file(first);
  const std::string third = upload(jobs, "c");
  const json list = json_of(jobs.list_files());
  std::set<std::string> ids;
  for (const json& file : list["data"]) ids.insert(file["id"]);
  CHECK(ids == std::set{second, third});
  CHECK(json_of(jobs.list_files("order=asc&limit=1"))["has_more"] == true);
}

TEST_CASE("there are so many files and no more") {
  const TemporaryFolder folder;
  const std::filesystem::path files = folder.path() / "files";
  std::filesystem::create_directories(files);
  for (std::size_t i = 0; i < FileStore::files_max; ++i) {
    const std::string id = "file-" + std::to_string(i);
    std::ofstream(files / (id + ".json"))
        << R"({"id":")" << id << R"(","filename":"a","purpose":"b","bytes":1,"created_at":1})";
  }
  JobsApi jobs(folder.path(), std::uint64_t{1} << 32);
  CHECK(status_of([&] { upload(jobs, "a"); }) == 507);
  jobs.delete_file("file-7");
  CHECK(status_of([&] { upload(jobs, "a"); }) == 200);
  CHECK(status_of([&] { upload(jobs, "a"); }) == 507);
}

TEST_CASE("what a list cannot be asked for is refused by name") {
  const TemporaryFolder folder;
  const JobsApi jobs(folder.path(), 1 << 20);
  const auto problem_of = [](const std::function<void()>& work) -> std::string {
    try {
      work();
    } catch (const ApiError& error) {
      return std::to_string(error.status) + " " + error.what();
    }
    return "";
  };
  const std::string limit = R"(400 "limit" must)", after = R"(400 "after" names no)";
  for (const std::string bad : {"0", "-1", "x", "", "5x", "99999999999999999999", "10001"}) {
    INFO(bad);
    CHECK(problem_of([&] { jobs.list_files("limit=" + bad); }).starts_with(limit));
    CHECK(problem_of([&] { jobs.list_batches("limit=" + bad); }).starts_with(limit));
  }
  CHECK(problem_of([&] { jobs.list_batches("limit=101"); }).ends_with("from 1 to 100"));
  CHECK(problem_of([&] { jobs.list_files("limit=10000&&after=&x"); }).empty());
  for (const std::string bad : {"file-none", "../lock", "%00"}) {
    CHECK(problem_of([&] { jobs.list_files("after=" + bad); }).starts_with(after));
    CHECK(problem_of([&] { jobs.list_batches("after=" + bad); }).starts_with(after));
  }
  CHECK(problem_of([&] { jobs.list_files("order=up"); }).starts_with(R"(400 "order" must)"));
}

TEST_CASE("an upload that ends early leaves nothing") {
  const TemporaryFolder folder;
  {
    JobsApi jobs(folder.path(), room_for(1, 1000));
    RequestHead head;
    head.fields.push_back({"Content-Type", boundary_type});
    const auto sink = jobs.begin_upload(head);
    sink->take(form_of("hello").substr(0, 170));
    CHECK(status_of([&] { JobsApi::end_upload(*sink); }) == 400);
  }
  std::ofstream(folder.path() / "files" / "file-x.partial-abcdef") << "of a crash";
  std::ofstream(folder.path() / "files" / "file-without-description") << "of a crash";
  JobsApi jobs(folder.path(), 1000);
  CHECK(std::filesystem::is_empty(folder.path() / "files"));
}

TEST_CASE("files in the folder that the server did not write stay") {
  const TemporaryFolder folder;
  const std::filesystem::path files = folder.path() / "files";
  const std::vector<std::string> others = {"README",
                                           "thesis",
                                           "x.partial-1.zip",
                                           "x.partial-abcdef",
                                           "file-x.partial-abcdefg",
                                           "file-x.y.partial-abcdef",
                                           ".partial-abcdef",
                                           "file-.txt"};
  std::filesystem::create_directories(files / "file-folder");
  std::filesystem::create_directories(files / "folder");
  std::ofstream(files / "folder" / "inside") << "x";
  for (const std::string& name : others) std::ofstream(files / name) << "of the user";
  std::filesystem::create_symlink("README", files / "file-link");
  const std::vector<std::string> remains = {"file-x.json.partial-abcdef", "file-x"};
  for (const std::string& name : remains) std::ofstream(files / name) << "of a crash";
  const JobsApi jobs(folder.path(), 1000);
  for (const std::string& name : others) {
    INFO(name);
    CHECK(std::filesystem::exists(files / name));
  }
  CHECK(std::filesystem::exists(files / "folder" / "inside"));
  CHECK(std::filesystem::exists(files / "file-folder"));
  CHECK(std::filesystem::is_symlink(files / "file-link"));
  for (const std::string& name : remains) CHECK_FALSE(std::filesystem::exists(files / name));
}

TEST_CASE("records that are none are left aside, whatever is in them") {
  const TemporaryFolder folder;
  const std::string deep = std::string(60'000, '[') + std::string(60'000, ']');
  const auto batch = [](const std::string& id, const std::string& more) {
    return R"({"id": ")" + id + R"(", "status": "in_progress", "input_file_id": "f", )" +
           R"("created_at": 3)" + more + "}";
  };
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
  };
  const std::string counts = R"(, "request_counts": {"total": 1})";
  write("good.json", batch("good", counts + R"(, "metadata": {"a": "b"})"));
  write("deep.json", batch("deep", counts + R"(, "metadata": )" + deep));
  write("other.json", batch("another", counts));
  write("cut.json", batch("cut", counts).substr(0, 40));
  write("number.json", batch("number", R"(, "model": 3)"));
  write("list.json", batch("list", R"(, "request_counts": [1])"));
  write("negative.json", batch("negative", R"(, "request_counts": {"total": -1})"));
  BatchStore batches(folder.path());
  CHECK(batches.not_ended() == std::vector<std::string>{"good"});
  batches.set_status("good", "completed");
  CHECK(BatchStore(folder.path()).not_ended().empty());

  const TemporaryFolder other;
  const auto file = [&](const std::string& id, const std::string& bytes) {
    std::ofstream(other.path() / (id + ".json"))
        << R"({"id": ")" + id + R"(", "filename": "a", "purpose": "batch", "created_at": 5, )" +
               R"("bytes": )" + bytes + "}";
    std::ofstream(other.path() / id) << "x";
  };
  file("good", "1");
  file("negative", "-1");
  file("huge", "1e300");
  file("deep", std::string(20'000, '[') + std::string(20'000, ']'));
  const std::vector<StoredFile> files = FileStore(other.path(), 1000).list();
  REQUIRE(files.size() == 1);
  CHECK(files[0].id == "good");
}

namespace {

std::uint64_t records_bytes(const BatchStore& batches) {
  std::uint64_t bytes = 0;
  for (const BatchJson& batch : batches.list()) bytes += sluice::json_bytes(batch);
  return bytes;
}

const nlohmann::ordered_json batch_body = {
    {"input_file_id", "f"}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};

}  // namespace

TEST_CASE("a new batch is taken however many have ended") {
  const TemporaryFolder folder;
  std::uint64_t held = 0;
  const auto write = [&](std::size_t number, const std::string& status) {
    const nlohmann::ordered_json record = {{"id", "b" + std::to_string(number)},
                                           {"status", status},
                                           {"input_file_id", "f"},
                                           {"created_at", number},
                                           {"metadata", std::string(20'000, 'm')}};
    std::ofstream(folder.path() / ("b" + std::to_string(number) + ".json")) << record.dump();
    held += sluice::json_bytes(record);
  };
  std::size_t newest = 1;
  write(newest, "in_progress");
  while (held < BatchStore::records_bytes_max) write(++newest, "completed");
  BatchStore batches(folder.path());
  const std::string id = batches.create(batch_body, "model").at("id");
  CHECK(batches.find(id));
  CHECK(batches.find("b1"));  // it has not ended
  CHECK_FALSE(batches.find("b2"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "b2.json"));
  CHECK(batches.find("b" + std::to_string(newest)));
  CHECK(records_bytes(batches) <= BatchStore::records_bytes_max);
  CHECK(BatchStore(folder.path()).not_ended().size() == 2);
}

TEST_CASE("batches that have not ended hold so much memory and no more") {
  const TemporaryFolder folder;
  BatchStore batches(folder.path());
  nlohmann::ordered_json body = batch_body;
  for (int i = 0; i < 16; ++i) {
    body["metadata"][std::string(500, 'k') + std::to_string(i)] = std::string(512, 'm');
  }
  unsigned status = 200;
  for (int i = 0; i < 1000 && status == 200; ++i) {
    status = status_of([&] { batches.create(body, "model"); });
  }
  CHECK(status == 507);
  CHECK(records_bytes(batches) <= BatchStore::records_bytes_max);
  CHECK(records_bytes(batches) > BatchStore::records_bytes_max / 2);
}

TEST_CASE("two servers do not share a folder") {
  const TemporaryFolder folder;
  const JobsApi jobs(folder.path(), 1000);
  CHECK_THROWS(JobsApi(folder.path(), 1000));
}

TEST_CASE("a batch's results are those of sluice batch") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string rows = random_rows(random, 60);
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  const json batch = wait_for_end(jobs, begin_batch(jobs, upload(jobs, rows)));
  jobs.stop();
  CHECK(batch["status"] == "completed");
  CHECK(batch["request_counts"]["total"] == 60);
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  CHECK(lines.size() == batch["request_counts"]["completed"]);
  add_lines(jobs, batch["error_file_id"], lines);
  CHECK(lines == batch_lines(rows));
}

TEST_CASE("a batch that is interrupted again and again has every row once") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string rows = random_rows(random, 80);
  const TemporaryFolder folder;
  std::string id;
  json batch;
  for (int start = 0; start < 200; ++start) {
    JobsApi jobs(folder.path(), 1 << 20);
    Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 3});
    service.wait_until_ready();
    if (id.empty()) {
      jobs.start(service, settings());
      id = begin_batch(jobs, upload(jobs, rows));
    } else {
      jobs.start(service, settings());
    }
    if (random() % 3 != 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 12));
    if (random() % 3 == 0) service.stop();  // as when the engine fails
    if (start < 20) jobs.stop();
    if (start >= 20 && service.state() == Service::State::ready) wait_for_end(jobs, id);
    jobs.stop();
    batch = json_of(jobs.batch(id));
    if (is_final(batch)) break;
  }
  CHECK(batch["status"] == "completed");
  JobsApi jobs(folder.path(), 1 << 20);
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  add_lines(jobs, batch["error_file_id"], lines);
  CHECK(lines == batch_lines(rows));
}

TEST_CASE("rows whose weights cannot be read run again until they have their results") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string rows = random_rows(random, 40);
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  std::atomic<int> reads = 0;
  Service service(
      [&](std::function<void()> stop_check) {
        auto engine = std::make_unique<FakeEngine>(
            sluice::test::FakeLimits{.columns = 16, .logits = 8, .pages = 200});
        engine->stop_check = [&, stop_check = std::move(stop_check)] {
          if (++reads % 240 == 0) throw std::system_error(EIO, std::generic_category());
          stop_check();
        };
        return engine;
      },
      {.scheduler = {.parallel = 4}, .queue_max = 100, .step_tries = 1});
  service.wait_until_ready();
  jobs.start(service, settings());
  const json batch = wait_for_end(jobs, begin_batch(jobs, upload(jobs, rows)));
  jobs.stop();
  CHECK(service.statistics().failed > 0);
  CHECK(batch["status"] == "completed");
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  add_lines(jobs, batch["error_file_id"], lines);
  CHECK(lines == batch_lines(rows));
}

TEST_CASE("a batch that is cancelled keeps what is done") {
  ClosedServer server;
  JobsApi& jobs = server.jobs;
  Service& service = server.service;
  std::string rows = row(0, {{"prompt", "a"}, {"wishes", 1}});
  for (int i = 1; i < 40; ++i) rows += row(i, {{"prompt", "a"}, {"max_tokens", 5}});
  const std::string id = begin_batch(jobs, upload(jobs, rows));
  while (service.statistics().accepted == 0) std::this_thread::sleep_for(1ms);
  CHECK(json_of(jobs.cancel_batch(id))["status"] == "cancelling");
  const json batch = wait_for_end(jobs, id);
  CHECK(batch["status"] == "cancelled");
  CHECK(batch["output_file_id"].is_null());
  std::map<std::string, json> lines;
  add_lines(jobs, batch["error_file_id"], lines);
  CHECK(lines.size() == 1);
  CHECK(status_of([&] { jobs.cancel_batch(id); }) == 409);
  // The next one runs.
  server.is_closed = false;
  CHECK(wait_for_end(jobs, begin_batch(jobs, upload(jobs, row(0, {{"prompt", "a"}}))))["status"] ==
        "completed");
}

TEST_CASE("a batch that is cancelled while its input is read does not run") {
  // Room for results is reserved after the input has been read.
  struct Disk : sluice::files::SystemCalls {
    std::function<void()> on_reserve;
    int fallocate(int descriptor, off_t at, off_t bytes) override {
      if (const auto once = std::exchange(on_reserve, nullptr)) once();
      return SystemCalls::fallocate(descriptor, at, bytes);
    }
  } disk;
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20, disk);
  Service service(fake(), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  const std::string file = upload(jobs, row(0, {{"prompt", "a"}}));
  std::atomic<bool> is_cancelled = false;
  disk.on_reserve = [&] {
    const std::string id = json_of(jobs.list_batches()).at("data")[0].at("id");
    is_cancelled = json_of(jobs.cancel_batch(id))["status"] == "cancelling";
  };
  jobs.start(service, settings());
  const json batch = wait_for_end(jobs, begin_batch(jobs, file));
  CHECK(is_cancelled);
  CHECK(batch["status"].get<std::string>() == "cancelled");
  CHECK(batch["in_progress_at"].is_null());
  CHECK(service.statistics().accepted == 0);
}

TEST_CASE("a batch that waits behind another one is cancelled at once") {
  ClosedServer server;
  JobsApi& jobs = server.jobs;
  Service& service = server.service;
  const std::string file = upload(jobs, row(0, {{"prompt", "a"}}));
  const std::string first = begin_batch(jobs, file), second = begin_batch(jobs, file);
  while (service.statistics().accepted == 0) std::this_thread::sleep_for(1ms);
  const json running = json_of(jobs.batch(first));
  const std::string waiting = running["status"] == "in_progress" ? second : first;
  const json batch = json_of(jobs.cancel_batch(waiting));
  CHECK(batch["status"].get<std::string>() == "cancelled");
  CHECK(batch["cancelled_at"].is_number());
  CHECK(status_of([&] { jobs.cancel_batch(waiting); }) == 409);
  server.is_closed = false;
  const std::string other = waiting == first ? second : first;
  CHECK(wait_for_end(jobs, other)["status"].get<std::string>() == "completed");
  CHECK(service.statistics().accepted == 1);
  jobs.stop();
  CHECK(BatchStore(server.folder.path() / "batches").not_ended().empty());
}

TEST_CASE("a batch that cannot run fails and says why") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  const std::string good =
      R"({"input_file_id":"file-none","endpoint":"/v1/completions","completion_window":"24h"})";
  CHECK(status_of([&] { jobs.create_batch(good); }) == 503);  // nothing runs yet
  Service service(fake(), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  for (const std::string& body :
       {good, std::string("{"), std::string("{}"), std::string(R"({"endpoint":"/v1/other"})"),
        std::string(R"({"wishes":1})")}) {
    CHECK(status_of([&] { jobs.create_batch(body); }) == 400);
  }
  const json empty = wait_for_end(jobs, begin_batch(jobs, upload(jobs, "\n\n")));
  CHECK(empty["status"] == "failed");
  CHECK(empty["errors"]["data"][0]["message"].get<std::string>().find("no rows") !=
        std::string::npos);
  std::string many;
  for (std::uint64_t i = 0; i <= batch_rows_max + 100'000; ++i) many += "x\n";
  CHECK(wait_for_end(jobs, begin_batch(jobs, upload(jobs, many)))["status"] == "failed");
}

TEST_CASE("what is wrong with a batch is said by name, and its metadata come back") {
  const auto message_of = [](const std::function<void()>& work) -> std::string {
    try {
      work();
    } catch (const ApiError& error) {
      return error.what();
    }
    return "";
  };
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  Service service(fake(), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  const json good = {{"input_file_id", upload(jobs, row(1, {{"prompt", "a"}, {"max_tokens", 2}}))},
                     {"endpoint", "/v1/completions"},
                     {"completion_window", "24h"}};
  const std::string long_text(513, 'x');
  json many = json::object();
  for (int i = 0; i < 17; ++i) many["key " + std::to_string(i)] = "value";
  const std::string metadata = "\"metadata\" must be an object of at most 16 short strings";
  const std::vector<std::tuple<std::string, json, std::string>> cases = {
      {"wishes", 1, "\"wishes\" is unknown"},
      {"endpoint", "/v1/other", "\"endpoint\" must be \"/v1/completions\" or"},
      {"endpoint", 5, "\"endpoint\" must be a string"},
      {"input_file_id", "file-none", "\"input_file_id\" names a file that is not there"},
      {"input_file_id", nullptr, "\"input_file_id\" must be a string"},
      {"completion_window", 24, "\"completion_window\" must be a string"},
      {"metadata", "text", metadata},
      {"metadata", many, metadata},
      {"metadata", {{"key", 1}}, metadata},
      {"metadata", {{"key", long_text}}, metadata},
      {"metadata", {{long_text, "value"}}, metadata}};
  for (const auto& [name, value, why] : cases) {
    json body = good;
    body[name] = value;
    INFO(body.dump().substr(0, 300));
    CHECK(message_of([&] { jobs.create_batch(body.dump()); }).find(why) != std::string::npos);
  }
  json without = good;
  without.erase("endpoint");
  CHECK(message_of([&] { jobs.create_batch(without.dump()); }) == "\"endpoint\" is missing");
  CHECK(json_of(jobs.list_batches())["data"].empty());
  many.erase("key 0");
  for (const json& notes : {json(nullptr), many, json::object()}) {
    json body = good;
    body["metadata"] = notes;
    const std::string id = json_of(jobs.create_batch(body.dump()))["id"];
    CHECK(wait_for_end(jobs, id)["metadata"] == notes);
    CHECK(message_of([&] { jobs.cancel_batch(id); }) == "the batch has ended");
  }
  CHECK(json_of(jobs.list_batches())["data"].size() == 3);
  CHECK(message_of([&] { jobs.batch("batch_none"); }) == "there is no such batch");
  CHECK(message_of([&] { jobs.cancel_batch("batch_none"); }) == "there is no such batch");

  for (const std::string missing : {"file", "purpose"}) {
    RequestHead head;
    head.fields.push_back({"Content-Type", boundary_type});
    const auto sink = jobs.begin_upload(head);
    const std::string other = missing == "file" ? "purpose\"" : "file\"; filename=\"a\"";
    sink->take("--a-b\r\nContent-Disposition: form-data; name=\"" + other +
               "\r\n\r\nbatch\r\n--a-b--\r\n");
    CHECK(message_of([&] { JobsApi::end_upload(*sink); }) == "\"" + missing + "\" is missing");
  }
}

TEST_CASE("a disk that is full at any write of a batch pauses it, and every row is there once") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string rows = random_rows(random, 12);
  const std::map<std::string, json> expected = batch_lines(rows);
  bool has_failed = true;
  for (int round = 0; has_failed; ++round) {
    const int at = round / 2;
    const bool gets_room = round % 2 == 0;  // else the server is started again
    INFO("change " << at << (gets_room ? ", then room" : ", then a new start"));
    const TemporaryFolder folder;
    FullDisk disk;
    json batch;
    std::string id;
    {
      JobsApi jobs(folder.path(), 1 << 20, disk);
      Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 100});
      service.wait_until_ready();
      const std::string file = upload(jobs, rows);
      disk.fill_after(at);
      jobs.start(service, settings());
      try {
        id = begin_batch(jobs, file);
      } catch (const ApiError& error) {  // the record of the batch was not kept
        CHECK(error.status == 507);
        CHECK(std::string(error.what()).find(folder.path().string()) == std::string::npos);
        continue;
      }
      batch = wait_for_pause(jobs, id);
      has_failed = disk.has_failed();
      if (has_failed) {
        CHECK_FALSE(is_final(batch));
        CHECK(pause_of(batch) != "");
        CHECK(pause_of(batch).find(folder.path().string()) == std::string::npos);
      }
      if (gets_room) {
        disk.make_room();
        batch = wait_for_end(jobs, id);
      }
      jobs.stop();  // also while the disk is full
    }
    JobsApi jobs(folder.path(), 1 << 20);
    if (!gets_room) {
      Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 100});
      service.wait_until_ready();
      jobs.start(service, settings());
      batch = wait_for_end(jobs, id);
      jobs.stop();
    }
    CHECK(batch["status"].get<std::string>() == "completed");
    CHECK(batch["errors"].is_null());
    std::map<std::string, json> lines;
    add_lines(jobs, batch["output_file_id"], lines);
    add_lines(jobs, batch["error_file_id"], lines);
    CHECK(lines == expected);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "batches")) {
      CHECK(entry.path().filename() == id + ".json");  // no journal, no partial file
    }
  }
}

TEST_CASE("rows that end in one step while the journal fails are computed again") {
  const TemporaryFolder folder;
  FullDisk disk;
  JobsApi jobs(folder.path(), 1 << 20, disk);
  std::atomic<bool> is_closed = true;
  Service service(fake(&is_closed), {.scheduler = {.parallel = 4}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  std::string rows;
  for (int i = 0; i < 8; ++i) rows += row(i, {{"prompt", "a"}, {"max_tokens", 3}, {"seed", i}});
  const std::string id = begin_batch(jobs, upload(jobs, rows));
  while (service.statistics().accepted < 5) std::this_thread::sleep_for(1ms);
  disk.fill_after(0);
  is_closed = false;
  CHECK(pause_of(wait_for_pause(jobs, id)) != "");
  jobs.stop();
  disk.make_room();
  jobs.start(service, settings());
  const json batch = wait_for_end(jobs, id);
  jobs.stop();
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  CHECK(lines == batch_lines(rows));
}

TEST_CASE("the limit of all files pauses a batch, until there is room for its results") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), room_for(2, 20'000));
  Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 100});
  service.wait_until_ready();
  std::string rows;
  for (int i = 0; i < 9; ++i) rows += row(i, {{"prompt", "a"}, {"max_tokens", 3}});
  const std::string file = upload(jobs, rows);
  const std::string other = upload(jobs, std::string(20'000 - rows.size() - 100, 'x'));
  jobs.start(service, settings());
  const std::string id = begin_batch(jobs, file);
  CHECK(pause_of(wait_for_pause(jobs, id)).find("--data-size") != std::string::npos);
  jobs.delete_file(other);
  const json batch = wait_for_end(jobs, id);
  CHECK(batch["status"].get<std::string>() == "completed");
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  CHECK(lines == batch_lines(rows));
}

TEST_CASE("a batch does not go on with another model, and gives what it has when cancelled") {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += row(i, {{"prompt", "a"}, {"max_tokens", 9}, {"seed", i}});
  for (const bool is_cancelled : {true, false}) {
    const TemporaryFolder folder;
    JobsApi jobs(folder.path(), 1 << 20);
    std::string id;
    std::uint64_t before = 0;
    const auto start = [&](Service& service, const std::string& model) {
      BatchSettings wanted = settings();
      wanted.state = {{"the model", model}};
      service.wait_until_ready();
      jobs.start(service, wanted);
    };
    {
      std::atomic<int> left = 400;  // enough for some of the rows
      Service service(fake_for(left), {.scheduler = {.parallel = 4}, .queue_max = 100});
      start(service, "one");
      id = begin_batch(jobs, upload(jobs, rows));
      while (before == 0) before = json_of(jobs.batch(id))["request_counts"]["completed"];
      jobs.stop();
      CHECK_FALSE(is_final(json_of(jobs.batch(id))));
    }
    Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 100});
    start(service, "two");
    CHECK(pause_of(wait_for_pause(jobs, id)).find("the model was \"one\" and is \"two\"") !=
          std::string::npos);
    // Others run meanwhile.
    const std::string next = begin_batch(jobs, upload(jobs, row(0, {{"prompt", "b"}})));
    CHECK(wait_for_end(jobs, next)["status"].get<std::string>() == "completed");
    CHECK(service.statistics().accepted == 1);
    if (is_cancelled) {
      jobs.cancel_batch(id);
    } else {
      jobs.stop();
      start(service, "one");
    }
    const json batch = wait_for_end(jobs, id);
    jobs.stop();
    CHECK(batch["status"].get<std::string>() == (is_cancelled ? "cancelled" : "completed"));
    std::map<std::string, json> lines;
    add_lines(jobs, batch["output_file_id"], lines);
    const std::map<std::string, json> expected = batch_lines(rows);
    for (const auto& [name, line] : lines) CHECK(line == expected.at(name));
    CHECK(lines.size() >= before);
    CHECK((lines.size() == 300) == !is_cancelled);
  }
}

TEST_CASE("a batch that has begun and waits is cancelled at once, with the results so far") {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += row(i, {{"prompt", "a"}, {"max_tokens", 9}, {"seed", i}});
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  std::string id;
  const auto start = [&](Service& service, const std::string& model) {
    BatchSettings wanted = settings();
    wanted.state = {{"the model", model}};
    service.wait_until_ready();
    jobs.start(service, wanted);
  };
  {
    std::atomic<int> left = 400;  // enough for some of the rows
    Service service(fake_for(left), {.scheduler = {.parallel = 4}, .queue_max = 100});
    start(service, "one");
    id = begin_batch(jobs, upload(jobs, rows));
    while (json_of(jobs.batch(id))["request_counts"]["completed"] == 0) {
      std::this_thread::sleep_for(1ms);
    }
    jobs.stop();
  }
  std::atomic<bool> is_closed = true;
  Service service(fake(&is_closed), {.scheduler = {.parallel = 4}, .queue_max = 100});
  start(service, "two");
  CHECK(pause_of(wait_for_pause(jobs, id)) != "");
  const std::string next = begin_batch(jobs, upload(jobs, row(0, {{"prompt", "b"}})));
  while (service.statistics().accepted == 0) std::this_thread::sleep_for(1ms);
  const json batch = json_of(jobs.cancel_batch(id));
  CHECK(batch["status"].get<std::string>() == "cancelled");
  CHECK(batch["errors"].is_null());
  CHECK(status_of([&] { jobs.cancel_batch(id); }) == 409);
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  CHECK_FALSE(lines.empty());
  const std::map<std::string, json> expected = batch_lines(rows);
  for (const auto& [name, line] : lines) CHECK(line == expected.at(name));
  is_closed = false;
  CHECK(wait_for_end(jobs, next)["status"].get<std::string>() == "completed");
  jobs.stop();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "batches")) {
    CHECK(entry.path().extension() == ".json");  // no journal
  }
}

// The time in which it may be cancelled has no event of its own: it begins when the journal has
// been put on the disk, and lasts while the input is read.
TEST_CASE("a batch that is cancelled before it has to wait for other settings does not wait") {
  struct Disk : sluice::files::SystemCalls {
    std::function<void()> on_sync;
    int fdatasync(int descriptor) override {
      const int result = SystemCalls::fdatasync(descriptor);
      if (const auto once = std::exchange(on_sync, nullptr)) once();
      return result;
    }
  } disk;
  std::string rows;
  for (int i = 0; i < 40'000; ++i) rows += row(i, {{"prompt", std::string(100, 'a')}});
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 25, disk);
  const auto start = [&](Service& service, const std::string& model) {
    BatchSettings wanted = settings();
    wanted.state = {{"the model", model}};
    service.wait_until_ready();
    jobs.start(service, wanted);
  };
  std::string id;
  {
    std::atomic<bool> is_closed = true;
    Service service(fake(&is_closed), {.scheduler = {.parallel = 2}, .queue_max = 100});
    start(service, "one");
    id = begin_batch(jobs, upload(jobs, rows));
    while (service.statistics().accepted == 0) std::this_thread::sleep_for(1ms);
    jobs.stop();
  }
  Service service(fake(), {.scheduler = {.parallel = 2}, .queue_max = 100});
  std::promise<void> begun;
  disk.on_sync = [&] { begun.set_value(); };
  start(service, "two");
  begun.get_future().wait();
  std::this_thread::sleep_for(2ms);
  jobs.cancel_batch(id);
  CHECK(wait_for_end(jobs, id)["status"].get<std::string>() == "cancelled");
}

TEST_CASE("a file that cannot be read now is not taken for absent") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  const std::string file = upload(jobs, row(0, {{"prompt", "a"}, {"max_tokens", 2}}));
  const std::filesystem::path description = folder.path() / "files" / (file + ".json");
  std::atomic<bool> is_closed = true;
  Service service(fake(&is_closed), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  // The first one keeps the second from being looked at.
  const std::string first = begin_batch(jobs, upload(jobs, row(0, {{"prompt", "a"}})));
  while (service.statistics().accepted == 0) std::this_thread::sleep_for(1ms);
  const std::string second = begin_batch(jobs, file);
  std::filesystem::rename(description, folder.path() / "aside");
  std::filesystem::create_symlink(description.filename(), description);  // to itself
  CHECK_THROWS_AS(jobs.file(file), std::system_error);
  is_closed = false;
  CHECK(wait_for_end(jobs, first)["status"].get<std::string>() == "completed");
  CHECK(pause_of(wait_for_pause(jobs, second)) != "");
  std::filesystem::rename(folder.path() / "aside", description);
  CHECK(wait_for_end(jobs, second)["status"].get<std::string>() == "completed");
}

TEST_CASE("a journal that disappears is begun anew, and no row is missing") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  std::atomic<int> left = 400;
  Service service(fake_for(left), {.scheduler = {.parallel = 4}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += row(i, {{"prompt", "a"}, {"max_tokens", 9}, {"seed", i}});
  const std::string id = begin_batch(jobs, upload(jobs, rows));
  while (json_of(jobs.batch(id))["request_counts"]["completed"] == 0) {
    std::this_thread::sleep_for(1ms);
  }
  std::filesystem::remove(folder.path() / "batches" / (id + ".jsonl"));
  left = std::numeric_limits<int>::max();
  const json batch = wait_for_end(jobs, id);
  jobs.stop();
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  CHECK(lines == batch_lines(rows));
}

TEST_CASE("what a server keeps is for its user alone") {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0022);
  const std::filesystem::path data = folder.path() / "new" / "data";
  JobsApi jobs(data, 1 << 20);
  std::atomic<bool> is_closed = true;
  Service service(fake(&is_closed), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  begin_batch(jobs, upload(jobs, row(0, {{"prompt", "a"}})));
  while (service.statistics().accepted == 0) std::this_thread::sleep_for(1ms);
  std::size_t files = 0;
  CHECK(mode_of(folder.path() / "new") == 0700);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path() / "new")) {
    CHECK(mode_of(entry.path()) == (entry.is_directory() ? 0700 : 0600));
    files += entry.is_directory() ? 0 : 1;
  }
  CHECK(files == 6);  // the lock, an input and its description, a record, its journal and its state
  is_closed = false;
  jobs.stop();
  ::umask(before);
}

TEST_CASE("uploads at the same time keep to the limit together") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), room_for(2, 1000));
  RequestHead head;
  head.fields.push_back({"Content-Type", boundary_type});
  const auto one = jobs.begin_upload(head);
  auto other = jobs.begin_upload(head);
  const std::string form = form_of(std::string(900, 'x'));
  one->take(form);
  CHECK(status_of([&] { other->take(form); }) == 507);
  other.reset();  // gives back what it has taken
  CHECK(json_of(JobsApi::end_upload(*one))["bytes"] == 900);
  CHECK(status_of([&] { upload(jobs, std::string(100, 'x')); }) == 200);
  CHECK(status_of([&] { upload(jobs, "x"); }) == 507);
}

TEST_CASE("a row that is too long has an error that names its id") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 25);
  Service service(fake(), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
  const std::string rows = row(0, {{"prompt", std::string(1'100'000, 'x')}}) +
                           R"({"custom_id":"row-1","body":{"prompt":")" +
                           std::string(5'000'000, 'x') + "\"}}\n";
  const json batch = wait_for_end(jobs, begin_batch(jobs, upload(jobs, rows)));
  std::map<std::string, json> lines;
  add_lines(jobs, batch["error_file_id"], lines);
  CHECK(lines.contains("row-0"));
  CHECK(lines.contains("row-1"));
}

TEST_CASE("what a batch's texts hold comes out of the memory for clients") {
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 25);
  Service service(fake(), {.scheduler = {.parallel = 4}, .queue_max = 100});
  service.wait_until_ready();
  sluice::Allowance allowance(20'000);
  BatchSettings limited = settings();
  limited.task.positions_max = 10'000;
  limited.allowance = &allowance;
  {
    const auto all = allowance.take(allowance.bytes());
    REQUIRE(all);
    jobs.start(service, limited);
    const std::string rows = row(0, {{"prompt", "a"}, {"max_tokens", 3}}) +
                             row(1, {{"prompt", std::string(9'000, 'x')}, {"max_tokens", 3}}) +
                             row(2, {{"prompt", "b"}, {"max_tokens", 3}, {"n", 7}});
    begin_batch(jobs, upload(jobs, rows));
    std::this_thread::sleep_for(20ms);
    CHECK(service.statistics().accepted == 0);
  }
  const std::string id = json_of(jobs.list_batches()).at("data")[0].at("id");
  const json batch = wait_for_end(jobs, id);
  jobs.stop();
  CHECK(allowance.used() == 0);
  std::map<std::string, json> lines;
  add_lines(jobs, batch["output_file_id"], lines);
  CHECK(lines.size() == 2);
  CHECK(lines.contains("row-2"));
  lines.clear();
  add_lines(jobs, batch["error_file_id"], lines);
  REQUIRE(lines.contains("row-1"));
  CHECK(lines["row-1"].dump().find("the most is 20000") != std::string::npos);
}
