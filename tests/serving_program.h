// `sluice serve` in tests.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/http_client.h"
#include "tests/program.h"

namespace sluice::test {

// `sluice serve` on a free port; ends when it is destroyed.
class Serving {
 public:
  Serving(const Folder& folder, const std::string& model, std::vector<std::string> options = {}) {
    const std::string log = folder.file("log");
    std::vector<std::string> words = {program, "serve", model,    "--port",           "0",
                                      "--ctx", "256",   "--data", folder.file("data")};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      const int descriptor = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(descriptor, 2);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    for (int i = 0; i < 60'000 && !is_ready(content(log)); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::string text = content(log);
    INFO(text);
    REQUIRE(is_ready(text));
    const std::size_t at = text.find("http://127.0.0.1:") + 17;
    port = static_cast<std::uint16_t>(std::stoul(text.substr(at)));
  }
  ~Serving() { stop(SIGKILL); }

  // Returns the exit status.
  int stop(int signal) {
    if (process_ <= 0) return -1;
    ::kill(process_, signal);
    return wait();
  }

  // For its end, which somebody has asked it for. Returns the exit status.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t process() const { return process_; }

  std::uint16_t port = 0;

 private:
  static bool is_ready(const std::string& log) { return log.find("sluice: ready\n") != log.npos; }
  pid_t process_ = -1;
};

inline nlohmann::json post(std::uint16_t port, const std::string& target,
                           const nlohmann::json& body) {
  const Answer answer = HttpClient(port).ask("POST", target, body.dump());
  INFO(answer.body);
  CHECK(answer.status == 200);
  return nlohmann::json::parse(answer.body);
}

}  // namespace sluice::test
