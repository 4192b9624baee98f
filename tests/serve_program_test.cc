// The program as a server: who may connect, what it says, and that it gives the texts of a batch.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/catch.h"
#include "tests/http_client.h"
#include "tests/program.h"
#include "tests/sanitized.h"
#include "tests/serving_program.h"

namespace {

using namespace sluice::test;
using namespace std::chrono_literals;
using nlohmann::json;

// A port that nobody listens on now.
std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const there = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(socket, there, size) == 0);
  REQUIRE(::getsockname(socket, there, &size) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

}  // namespace

TEST_CASE("a server gives the texts of a batch, and ends when it is told to") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::vector<json> bodies = {
      {{"prompt", "One"}, {"seed", 1}, {"max_tokens", 12}},
      {{"prompt", "Two words"}, {"seed", 2}, {"max_tokens", 20}, {"temperature", 0}},
      {{"prompt", "3"}, {"seed", 3}, {"max_tokens", 9}, {"n", 2}, {"logprobs", 1}},
  };
  std::string rows;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    rows += json({{"custom_id", std::to_string(i)},
                  {"method", "POST"},
                  {"url", "/v1/completions"},
                  {"body", bodies[i]}})
                .dump() +
            "\n";
  }
  write(folder.file("in"), rows);
  REQUIRE(shell("sluice batch " + model + " " + folder.file("in") + " -o " + folder.file("out"))
              .status == 0);
  std::map<std::string, json> expected;
  std::istringstream lines(content(folder.file("out")));
  for (std::string line; std::getline(lines, line);) {
    const json result = json::parse(line);
    expected[result["custom_id"]] = result["response"]["body"];
  }
  Serving server(folder, model, {"--parallel", "2"});
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const json answer = post(server.port, "/v1/completions", bodies[i]);
    CHECK(answer["choices"] == expected.at(std::to_string(i))["choices"]);
    json usage = expected.at(std::to_string(i))["usage"];
    usage["prompt_tokens_details"] = {{"cached_tokens", 0}};
    CHECK(answer["usage"] == usage);
    CHECK(answer["model"] == expected.at(std::to_string(i))["model"]);
  }
  CHECK(json::parse(HttpClient(server.port).ask("GET", "/props").body)["total_slots"] == 2);
  const std::string name = std::filesystem::path(model).stem().string();
  const json models = json::parse(HttpClient(server.port).ask("GET", "/v1/models").body);
  CHECK(models["data"][0]["id"].get<std::string>() == name);
  CHECK(HttpClient(server.port).ask("GET", "/v1/models/" + name).status == 200);
  const json props = json::parse(HttpClient(server.port).ask("GET", "/props").body);
  CHECK(props["defaults"]["temperature"] == 0.8);
  CHECK(props["defaults"]["top_k"] == 40);
  CHECK(props["defaults"]["top_p"] == 0.95);
  CHECK(props["defaults"]["min_p"] == 0.05);
  CHECK(server.stop(SIGTERM) == 0);
}

TEST_CASE("a server that is told to end lets a stream end") {
  const Folder folder;
  // The machine may be busy: what counts is that the text ends, and not when.
  Serving server(folder, make_model(folder), {"--grace", "600"});
  HttpClient client(server.port);
  const std::string body =
      R"({"prompt":"a","max_tokens":200,"ignore_eos":true,"stream":true,"seed":1})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  while (client.received.find("data: {") == std::string::npos) REQUIRE(client.receive());
  REQUIRE(::kill(server.process(), SIGTERM) == 0);
  const Answer answer = client.read_answer();
  CHECK(answer.body.ends_with("data: [DONE]\n\n"));
  client.close();
  CHECK(server.wait() == 0);
}

// A batch keeps the server from ending for as long as the test likes: it pauses, and says so on
// standard error, which is a pipe that nobody reads.
TEST_CASE("a server that is told to end takes no more connections, whatever its batches do") {
  const Folder folder;
  const std::string model = make_model(folder), data = folder.file("data");
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(::fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  while (::write(ends[1], "x", 1) == 1) {
  }
  REQUIRE(::fcntl(ends[1], F_SETFL, 0) == 0);
  const std::string port = std::to_string(free_port());
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    // One file of rows fits, and its results do not.
    ::execl(program.c_str(), "sluice", "serve", model.c_str(), "--port", port.c_str(), "--ctx",
            "256", "--data", data.c_str(), "--data-size", "6KiB", "--quiet", nullptr);
    ::_exit(127);
  }
  const auto number = static_cast<std::uint16_t>(std::stoul(port));
  const auto answers = [&](const std::string& path, const std::string& text) {
    try {
      return HttpClient(number).ask("GET", path).body.find(text) != std::string::npos;
    } catch (const std::runtime_error&) {
      return false;
    }
  };
  const auto wait_until = [](const std::function<bool()>& condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
    return condition();
  };
  CHECK(wait_until([&] { return answers("/health", "\"ok\""); }));
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n--b\r\n"
      "Content-Disposition: form-data; name=file; filename=a\r\n\r\n"
      R"({"custom_id":"1","url":"/v1/completions","body":{"prompt":"a","max_tokens":1}})"
      "\r\n--b--\r\n";
  const Answer file = HttpClient(number).ask("POST", "/v1/files", form,
                                             "Content-Type: multipart/form-data; boundary=b\r\n");
  INFO(file.body);
  CHECK(file.status == 200);
  post(number, "/v1/batches",
       {{"input_file_id", json::parse(file.body)["id"]},
        {"endpoint", "/v1/completions"},
        {"completion_window", "24h"}});
  CHECK(wait_until([&] { return answers("/v1/batches", "\"paused\""); }));
  ::kill(process, SIGTERM);
  CHECK(wait_until([&] {
    try {
      const HttpClient client(number);
      return false;
    } catch (const std::runtime_error&) {
      return true;
    }
  }));
  CHECK(::waitpid(process, nullptr, WNOHANG) == 0);  // it has not ended yet
  ::close(ends[0]);
  int status = 0;
  CHECK(::waitpid(process, &status, 0) == process);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  ::close(ends[1]);
}

TEST_CASE("a server that ends writes its report") {
  const Folder folder;
  const std::string model = make_model(folder), report = folder.file("report.json");
  Serving server(folder, model, {"--report", report});
  post(server.port, "/v1/completions", {{"prompt", "x"}, {"max_tokens", 3}, {"ignore_eos", true}});
  REQUIRE(server.stop(SIGTERM) == 0);
  const json written = json::parse(content(report));
  CHECK(written["tokens_generated"] == 3);
  CHECK(written["steps"].get<int>() >= 3);
  CHECK(written["planned_peak_bytes"].get<std::uint64_t>() > 0);
  CHECK(written["parallel"].get<int>() > 0);
  CHECK(written["decode_tokens_per_s"].is_null());
}

TEST_CASE("a server keeps to this machine unless it is told otherwise") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string serve = "sluice serve " + model + " --data none --port 0 ";
  check_fails(serve + "--host 0.0.0.0", 2, "--api-key-file");
  check_fails(serve + "--host ::", 2, "--insecure");
  check_fails(serve + "--host example.org", 2, "--host");
  check_fails(serve + "--api-key-file /nowhere", 5, "/nowhere");
  write(folder.file("keys"), "short\n");
  ::chmod(folder.file("keys").c_str(), 0600);
  check_fails(serve + "--api-key-file " + folder.file("keys"), 2, "line 1");
  write(folder.file("keys"), "a-longer-key\n");
  ::chmod(folder.file("keys").c_str(), 0644);
  check_fails(serve + "--api-key-file " + folder.file("keys"), 2, "chmod");
  check_fails(serve + "--cors example.org", 2, "--cors");
  check_fails(serve + "--unix /nowhere/socket", 5, "/nowhere/socket");
  // A single line each: it does not say that it listens before.
  check_fails("sluice serve /nowhere.gguf --data none --port 0", 5, "/nowhere.gguf");
  write(folder.file("bad.gguf"), "no model");
  check_fails("sluice serve " + folder.file("bad.gguf") + " --data none --port 0", 3, "bad.gguf");
  check_fails(serve + "--draft /nowhere.gguf", 5, "/nowhere.gguf");
  check_fails(serve + "--speculate draft", 2, "--draft MODEL");
  check_fails(serve + "--sinks 4", 2, "--window");
  check_fails(serve + "--quiet --budget 1MiB", 4, "");
}

TEST_CASE("a server works with the least budget that its plan names, and with hardly less") {
  if (is_sanitized) SLUICE_SKIP("sanitizers hold memory that no plan knows of");
  const Folder folder;
  const std::string model = make_model(folder);
  const Result plan = shell("sluice plan " + model + " --ctx 256 --for serve --parallel 2 --json");
  REQUIRE(plan.status == 0);
  const auto least = json::parse(plan.output)["least_budget_bytes"].get<std::uint64_t>();
  Serving server(folder, model, {"--parallel", "2", "--budget", std::to_string(least)});
  CHECK(post(server.port, "/v1/completions", {{"prompt", "x"}, {"max_tokens", 3}})["choices"]
            .size() == 1);
  check_fails("sluice serve " + model + " --ctx 256 --parallel 2 --port 0 -q --data " +
                  folder.file("other") + " --budget " + std::to_string(least * 9 / 10),
              4, "the least that works");
}

TEST_CASE("the experts that the texts of a server take are traced") {
  const Folder folder;
  const std::string model = folder.file("model.gguf"), trace = folder.file("trace");
  REQUIRE(shell("sluice synth tiny-qwen3moe " + model).status == 0);
  Serving server(folder, model, {"--trace-experts", trace});
  post(server.port, "/v1/completions", {{"prompt", "x"}, {"max_tokens", 3}});
  REQUIRE(server.stop(SIGTERM) == 0);
  CHECK(content(trace).starts_with("sluice experts 1\n0 8: "));
  const Folder other;
  Serving full(other, model, {"--trace-experts", "/dev/full"});
  post(full.port, "/v1/completions", {{"prompt", "x"}, {"max_tokens", 3}});
  CHECK(full.stop(SIGTERM) == 5);
}

TEST_CASE("two servers do not share a folder of batches") {
  const Folder folder;
  const std::string model = make_model(folder);
  const Serving server(folder, model);
  check_fails("sluice serve " + model + " --port 0 --data " + folder.file("data"), 2,
              "another server");
  check_fails("sluice serve " + model + " --data none --port " + std::to_string(server.port), 5,
              "cannot listen");
}
