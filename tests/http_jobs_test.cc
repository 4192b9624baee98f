// Files and batches: uploads in any pieces, hostile forms, and batches whose every row has its
// result once, whatever ends the server.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <system_error>
#include <thread>

#include "core/batch/job.h"
#include "core/http/api/api_error.h"
#include "core/http/jobs_api.h"
#include "core/http/multipart.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
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

BatchSettings settings() {
  BatchSettings settings;
  settings.task.positions_max = 300;
  settings.task.defaults.tokens_max = 20;
  settings.model_name = "fake";
  settings.texts_max = 5;
  return settings;
}

json json_of(const Response& response) {
  return json::parse(response.body);
}

std::string content_of(const Response& response) {
  std::string text(response.file.bytes, '\0');
  REQUIRE(::pread(*response.file.descriptor, text.data(), text.size(), 0) ==
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

void add_lines(const JobsApi& jobs, const json& file, std::map<std::string, json>& lines) {
  if (file.is_null()) return;
  std::istringstream in(content_of(jobs.file_content(file.get<std::string>())));
  for (std::string line; std::getline(in, line);) {
    const json result = json::parse(line);
    CHECK(lines.emplace(result["custom_id"], result).second);  // once
  }
}

}  // namespace

TEST_CASE("a form is read the same however its bytes are cut") {
  const std::string content = "a\r\n--a-\r\n--a\r\n-b--\r\nrow\r\n";
  const std::string body = form_of(content);
  for (std::size_t piece = 1; piece < body.size(); ++piece) {
    std::string file;
    MultipartReader reader(boundary_type, [&](std::string_view bytes) { file += bytes; });
    for (std::size_t at = 0; at < body.size(); at += piece) reader.take(body.substr(at, piece));
    CHECK(reader.is_complete());
    CHECK(file == content);
    CHECK(reader.file_name() == "in \"x\".jsonl");
    CHECK(reader.fields().at("purpose") == "batch");
  }
}

TEST_CASE("a form that is none is refused") {
  const auto ignore = [](std::string_view) {};
  CHECK(status_of([&] { MultipartReader("application/json", ignore); }) == 400);
  CHECK(status_of([&] { MultipartReader("multipart/form-data", ignore); }) == 400);
  CHECK(status_of([&] { MultipartReader("multipart/form-data; boundary=", ignore); }) == 400);
  const auto status = [&](const std::string& body) {
    return status_of([&] { MultipartReader(boundary_type, ignore).take(body); });
  };
  CHECK(status(form_of("x")) == 200);
  CHECK(status(std::string(10'000, 'x')) == 400);
  CHECK(status("--a-bxx") == 400);
  CHECK(status("--a-b\r\n" + std::string(10'000, 'x')) == 400);
  CHECK(status("--a-b\r\nX: y\r\n\r\n") == 400);
  CHECK(status("--a-b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n" +
               std::string(10'000, 'x')) == 400);
  std::string many;
  for (int i = 0; i < 40; ++i) {
    many +=
        "--a-b\r\nContent-Disposition: form-data; name=\"" + std::to_string(i) + "\"\r\n\r\nx\r\n";
  }
  CHECK(status(many) == 400);
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
      MultipartReader reader(boundary_type, [&](std::string_view piece) { bytes += piece.size(); });
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
  JobsApi jobs(folder.path(), 1000);
  const std::string id = upload(jobs, "hello\n");
  CHECK(json_of(jobs.file(id))["bytes"] == 6);
  CHECK(json_of(jobs.file(id))["filename"] == "in \"x\".jsonl");
  CHECK(content_of(jobs.file_content(id)) == "hello\n");
  CHECK(json_of(jobs.list_files())["data"].size() == 1);
  CHECK(status_of([&] { upload(jobs, std::string(995, 'x')); }) == 507);
  CHECK(json_of(jobs.list_files())["data"].size() == 1);
  CHECK(json_of(jobs.delete_file(id))["deleted"] == true);
  CHECK(status_of([&] { jobs.file(id); }) == 404);
  for (const char* strange : {"../lock", "..", "/etc/passwd", "", "a.json", "a/b"}) {
    CHECK(status_of([&] { jobs.file(strange); }) == 404);
    CHECK(status_of([&] { jobs.file_content(strange); }) == 404);
  }
  upload(jobs, std::string(995, 'x'));
}

TEST_CASE("an upload that ends early leaves nothing") {
  const TemporaryFolder folder;
  {
    JobsApi jobs(folder.path(), 1000);
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
  BatchSettings wanted = settings();
  wanted.retry_pause = 1ms;
  jobs.start(service, wanted);
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
  const TemporaryFolder folder;
  JobsApi jobs(folder.path(), 1 << 20);
  std::atomic<bool> is_closed = true;
  Service service(fake(&is_closed), {.scheduler = {.parallel = 2}, .queue_max = 100});
  service.wait_until_ready();
  jobs.start(service, settings());
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
  is_closed = false;
  CHECK(wait_for_end(jobs, begin_batch(jobs, upload(jobs, row(0, {{"prompt", "a"}}))))["status"] ==
        "completed");
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
