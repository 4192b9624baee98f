// A server whose handler answers by path, for the tests of the transport.
#pragma once

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/descriptor.h"
#include "core/http/transport/server.h"
#include "tests/catch.h"

namespace sluice::test {

using namespace http;
using namespace std::chrono_literals;

class TestHandler;

// Counts what it gets.
class CountingSink final : public BodySink {
 public:
  explicit CountingSink(TestHandler& handler);
  ~CountingSink() override;
  void take(std::string_view piece) override;

 private:
  TestHandler& handler_;
};

// Answers by path. All members but the atomics belong to the server's thread.
class TestHandler final : public Handler {
 public:
  Reception receive(const RequestHead& head) override {
    Reception reception;
    reception.body_bytes_max = head.path == "/small" ? 10 : 100'000;
    if (head.path == "/none") reception.body_bytes_max = 0;
    if (head.path == "/sink") reception.sink = std::make_shared<CountingSink>(*this);
    if (head.path == "/refused") {
      reception.refusal = std::make_unique<Response>(refuse(ApiError(401, "no")));
    }
    if (head.path == "/throws") throw std::runtime_error("thrown");
    return reception;
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    Request& request = exchange->request();
    if (request.head.path == "/echo" || request.head.path == "/none") {
      std::string body = std::move(request.body);
      request.drop_body();
      exchange->respond({.type = "text/plain", .body = std::move(body)});
    } else if (request.head.path == "/sink") {
      exchange->respond({.type = "text/plain", .body = std::to_string(sunk_bytes)});
    } else if (request.head.path == "/file") {
      send_file(*exchange);
    } else if (request.head.path == "/flood") {
      exchange->on_gone([this] { ++gone; });
      exchange->begin_stream();
      flooded = exchange;
    } else {  // answered by the test
      exchange->on_gone([this] { ++gone; });
      const std::lock_guard lock(mutex);
      kept.push_back(exchange);
    }
  }
  Response refuse(const ApiError& error) override {
    return {.status = error.status, .type = "text/plain", .body = error.what()};
  }
  void report(const std::string& problem) override {
    const std::lock_guard lock(mutex);
    reports.push_back(problem);
  }
  void log(const Request&, unsigned status, std::chrono::milliseconds) override {
    ++logged;
    last_status = status;
  }
  std::shared_ptr<Exchange> wait_for_kept() {
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (!kept.empty()) return kept.back();
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  std::shared_ptr<Exchange> flooded;
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> kept;
  std::vector<std::string> reports;
  std::atomic<std::uint64_t> sunk_bytes{0};
  std::atomic<int> sinks{0};
  std::atomic<std::thread::id> sink_thread{};
  std::atomic<int> gone{0}, logged{0};
  std::atomic<unsigned> last_status{0};
  std::string path_of_file;

 private:
  void send_file(Exchange& exchange) const {
    base::Descriptor file(::open(path_of_file.c_str(), O_RDONLY | O_CLOEXEC));
    const auto bytes = static_cast<std::uint64_t>(::lseek(file.number(), 0, SEEK_END));
    Response response{.type = "text/plain", .body = {}};
    response.file = {std::make_shared<const base::Descriptor>(std::move(file)), bytes};
    exchange.respond(std::move(response));
  }
};

inline CountingSink::CountingSink(TestHandler& handler) : handler_(handler) {
  ++handler_.sinks;
}
inline CountingSink::~CountingSink() {
  handler_.sink_thread = std::this_thread::get_id();
  --handler_.sinks;
}
inline void CountingSink::take(std::string_view piece) {
  handler_.sunk_bytes += piece.size();
  if (piece.find("full") != std::string_view::npos) throw std::runtime_error("/a/path is full");
}

inline ServerLimits quick_limits() {
  ServerLimits limits;
  limits.tick = 5ms;
  return limits;
}

// A server on a free port, with a thread of its own.
class Running {
 public:
  explicit Running(const ServerLimits& limits = quick_limits(),
                   std::uint64_t bytes = std::uint64_t{64} << 20, std::uint64_t reserve_bytes = 0)
      : allowance(bytes, reserve_bytes) {
    std::vector<Listener> listeners;
    listeners.push_back(Listener::on_port("localhost", 0));
    port = listeners.front().port();
    server = std::make_unique<Server>(std::move(listeners), limits, handler, allowance);
    server->on_tick([this] { connections = server->counts().connections; });
    thread = std::thread([this] { server->run(); });
  }
  ~Running() {
    server->stop(0ms);
    if (thread.joinable()) thread.join();
  }
  // Runs something on the server's thread and waits for it.
  void on_thread(const std::function<void()>& work) {
    std::promise<void> done;
    server->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  sluice::Allowance allowance;
  TestHandler handler;
  std::uint16_t port = 0;
  std::atomic<std::uint64_t> connections{0};
  std::unique_ptr<Server> server;
  std::thread thread;
};

inline void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  REQUIRE(condition());
}

}  // namespace sluice::test
