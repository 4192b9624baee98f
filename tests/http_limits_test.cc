// The server against clients that are slow, hostile or many: whatever they send, how long it takes
// and what it holds of the server's memory is bounded, and the others are served meanwhile.
#include <fmt/format.h>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/http_client.h"
#include "tests/http_support.h"
#include "tests/random_seed.h"

using namespace sluice::http;
using namespace std::chrono_literals;
using sluice::test::HttpClient;
using sluice::test::quick_limits;
using sluice::test::Running;
using sluice::test::wait_for;

namespace {

// Much more than all buffers between a client and the server.
constexpr std::size_t flood_bytes = std::size_t{64} << 20;

// A request whose body has no end: what comes again and again, and how it begins.
struct Endless {
  std::string name, beginning, again;
};

std::vector<Endless> endless_bodies() {
  const std::string chunk = "5\r\nhello\r\n";
  return {
      {"the size of a chunk", "", "0"},
      {"the size of a later chunk", chunk, "0"},
      {"the extension of a chunk", "1;", "a"},
      {"the value of an extension", chunk + "1;a=", "b"},
      {"a text in an extension", "1;a=\"", "b"},
      {"extensions", chunk + "1", ";a=b"},
      {"the name of a trailer", "0\r\n", "a"},
      {"the value of a trailer", chunk + "0\r\nA: ", "b"},
      {"trailers", "0\r\n", "A: b\r\n"},
      {"chunks", "", chunk},
      {"chunks of a byte with long extensions", "", "1;" + std::string(8000, 'a') + "\r\nx\r\n"}};
}

std::string head_of(const std::string& start) {
  return start + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
}

// Sends until the server says something; returns how many bytes it took until then.
std::size_t flood(HttpClient& client, const Endless& endless, std::size_t piece_bytes) {
  client.send(endless.beginning);
  std::string piece;
  while (piece.size() < piece_bytes) piece += endless.again;
  std::size_t sent = 0;
  while (sent < flood_bytes && !client.has_received() && client.send(piece)) sent += piece.size();
  return sent;
}

}  // namespace

TEST_CASE("a body without an end is refused, wherever it has none") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  ServerLimits limits = quick_limits();
  limits.pace_time = 200ms;
  Running running(limits);
  for (const Endless& endless : endless_bodies()) {
    for (const char* start : {"GET /none", "POST /echo", "POST /sink"}) {
      INFO(start << ", " << endless.name);
      HttpClient client(running.port);
      client.send(head_of(start));
      const std::size_t sent = flood(client, endless, 1 + random() % 20'000);
      CHECK(sent < flood_bytes);
      const int status = client.read_answer().status;
      CHECK((status == 400 || status == 408 || status == 413));
      CHECK(HttpClient(running.port).ask("POST", "/echo", "fine").body == "fine");
    }
  }
  wait_for([&] { return running.handler.sinks == 0; });
  wait_for([&] { return running.allowance.used() == 0; });
}

TEST_CASE("bytes that trickle in do not keep a connection, in any part of a request") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  ServerLimits limits = quick_limits();
  limits.head_time = limits.idle_time = limits.pace_time = 60ms;
  Running running(limits);
  std::vector<std::string> beginnings = {"", "GET /no", head_of("POST /echo") + "5",
                                         "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 90000"
                                         "\r\n\r\n",
                                         "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 90000"
                                         "\r\n\r\n"};
  for (const Endless& endless : endless_bodies()) {
    beginnings.push_back(head_of("POST /sink") + endless.beginning);
  }
  for (const std::string& beginning : beginnings) {
    INFO(beginning);
    HttpClient client(running.port);
    client.send(beginning);
    const char letter = "a0;\r"[random() % 4];
    while (!client.has_received() && client.send(std::string(1, letter))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + random() % 20));
    }
    const int status = client.read_answer().status;
    CHECK((status == 408 || status == 400));
    CHECK(client.is_ended());
  }
  wait_for([&] { return running.handler.sinks == 0; });
}

TEST_CASE("a request to which no body belongs has none") {
  Running running;
  for (const std::string& body :
       {std::string("Content-Length: 1\r\n\r\nx"),
        std::string("Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
        std::string("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")}) {
    HttpClient client(running.port);
    client.send("GET /none HTTP/1.1\r\nHost: x\r\n" + body);
    CHECK(client.read_answer().status == 413);
    CHECK(client.is_ended());
  }
  HttpClient client(running.port);
  CHECK(client.ask("GET", "/none", "", "Content-Length: 0\r\n").status == 200);
  CHECK(client.ask("GET", "/none").status == 200);
}

TEST_CASE("a whole answer that is read too slowly is not kept") {
  ServerLimits limits = quick_limits();
  limits.pace_time = 50ms;
  Running running(limits);
  HttpClient client(running.port, 4096);
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_for_kept();
  running.on_thread([&] { exchange->respond({.body = std::string(flood_bytes / 2, 'x')}); });
  char byte = 0;
  while (running.connections != 0 && ::recv(client.descriptor(), &byte, 1, 0) == 1) {
    std::this_thread::sleep_for(2ms);
  }
  wait_for([&] { return running.handler.gone == 1; });
  running.on_thread([&] { CHECK(running.server->counts().cut_off == 1); });
  wait_for([&] { return running.allowance.used() == 0; });
}

TEST_CASE("what a sink takes, and its end, keep nobody waiting") {
  Running running;
  std::thread::id own;
  running.on_thread([&] { own = std::this_thread::get_id(); });
  SECTION("whole") {
    HttpClient client(running.port);
    const std::string body(90'000, 'x');
    CHECK(client.ask("POST", "/sink", body).body == "90000");
    CHECK(client.ask("POST", "/echo", "next").body == "next");
  }
  SECTION("given up by its client") {
    HttpClient client(running.port);
    client.send("POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n" +
                std::string(50'000, 'x'));
    wait_for([&] { return running.handler.sunk_bytes == 50'000; });
    client.close();
    wait_for([&] { return running.handler.sinks == 0; });
    CHECK(running.handler.sink_thread.load() != own);
  }
  SECTION("with a problem that is none of the client's business") {
    HttpClient client(running.port);
    const auto answer = client.ask("POST", "/sink", "the disk is full");
    CHECK(answer.status == 500);
    CHECK(answer.body.find("/a/path") == std::string::npos);
    CHECK(answer.body.find(answer.field("X-Request-Id")) != std::string::npos);
    const std::lock_guard lock(running.handler.mutex);
    REQUIRE(running.handler.reports.size() == 1);
    CHECK(running.handler.reports[0] == answer.field("X-Request-Id") + ": /a/path is full");
  }
}

TEST_CASE("an answer for which there is no memory is refused, and a stream is cut off") {
  ServerLimits limits = quick_limits();
  Running running(limits, 2 * connection_bytes(limits) + 200'000);
  HttpClient client(running.port, 4096);
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_for_kept();
  SECTION("whole") {
    running.on_thread([&] { exchange->respond({.body = std::string(1'000'000, 'x')}); });
    CHECK(client.read_answer().status == 503);
    CHECK(client.ask("POST", "/echo", "next").body == "next");
  }
  SECTION("streamed") {
    running.on_thread([&] {
      exchange->begin_stream();
      exchange->send(std::string(10'000'000, 'x'));
    });
    wait_for([&] { return running.handler.gone == 1; });
    wait_for([&] { return running.connections == 0; });
  }
}

TEST_CASE("a sender hears when all was sent, and can give up") {
  Running running;
  HttpClient client(running.port);
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_for_kept();
  std::atomic<int> sent{0};
  running.on_thread([&] {
    exchange->on_sent([&] { ++sent; });
    exchange->begin_stream({}, "application/json");
  });
  CHECK(client.read_head().find("application/json") != std::string::npos);
  wait_for([&] { return sent == 1; });
  running.on_thread([&] { exchange->send("[1"); });
  CHECK(client.read_chunk() == "[1");
  wait_for([&] { return sent == 2; });
  running.on_thread([&] {
    exchange->give_up();
    CHECK(exchange->is_gone());
  });
  CHECK_THROWS(client.read_chunk());  // its end is missing
}

TEST_CASE("slow clients lose their connection") {
  ServerLimits limits = quick_limits();
  limits.head_time = limits.idle_time = limits.pace_time = 50ms;
  Running running(limits);
  SECTION("in the header") {
    HttpClient client(running.port);
    client.send("GET /");
    CHECK(client.read_answer().status == 408);
    CHECK(client.is_ended());
  }
  SECTION("in the body") {
    HttpClient client(running.port);
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nabc");
    CHECK(client.read_answer().status == 408);
    CHECK(client.is_ended());
  }
  SECTION("in a body that trickles in") {
    HttpClient client(running.port);
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    while (client.send("x") && !client.has_received()) std::this_thread::sleep_for(2ms);
    CHECK(client.read_answer().status == 408);
    CHECK(client.is_ended());
  }
  SECTION("without a request") {
    HttpClient client(running.port);
    CHECK(client.is_ended());
  }
}

TEST_CASE("a client that does not read is cut off, and the others go on") {
  ServerLimits limits = quick_limits();
  limits.output_bytes_max = 100'000;
  Running running(limits);
  HttpClient slow(running.port, 4096);
  slow.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string event = "data: " + std::string(1000, 'x') + "\n\n";
  std::uint64_t sent = 0;
  HttpClient other(running.port);
  while (running.handler.gone == 0) {
    running.on_thread([&] {
      if (running.handler.flooded) running.handler.flooded->send(event);
      sent += event.size();
    });
    REQUIRE(sent < (std::uint64_t{1} << 30));
    if (sent % 100 == 0) CHECK(other.ask("POST", "/echo", "x").status == 200);
  }
  CHECK(running.handler.gone == 1);
  running.on_thread([&] { CHECK(running.server->counts().cut_off == 1); });
}

TEST_CASE("a long event cuts nobody off") {
  ServerLimits limits = quick_limits();
  limits.output_bytes_max = 100'000;
  Running running(limits);
  HttpClient client(running.port, 4096);
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_for_kept();
  running.on_thread([&] {  // the client has had no time to read
    exchange->begin_stream();
    exchange->send(std::string(8'000'000, 'x'));
    exchange->send("end");
    exchange->end_stream();
  });
  CHECK(client.read_answer().body == std::string(8'000'000, 'x') + "end");
}

TEST_CASE("connections and bodies beyond the limits are refused, and room comes back") {
  ServerLimits limits = quick_limits();
  limits.connections_max = 3;
  const std::uint64_t connections_bytes = 3 * connection_bytes(limits);
  Running running(limits, connections_bytes + 100'000);
  SECTION("connections") {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<HttpClient>(running.port));
    for (const auto& client : clients) client->send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for([&] {
      const std::lock_guard lock(running.handler.mutex);
      return running.handler.kept.size() == 3;
    });
    HttpClient one_too_many(running.port);
    CHECK(one_too_many.read_answer().status == 503);
    CHECK(one_too_many.is_ended());
    clients.pop_back();
    wait_for([&] { return running.connections == 2; });
    CHECK(HttpClient(running.port).ask("POST", "/echo", "x").status == 200);
  }
  SECTION("connections that are idle") {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<HttpClient>(running.port));
    clients[1]->send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto exchange = running.handler.wait_for_kept();
    for (const std::size_t i : {2U, 0U}) CHECK(clients[i]->ask("POST", "/echo", "x").status == 200);
    HttpClient another(running.port);
    CHECK(another.ask("POST", "/echo", "x").status == 200);
    CHECK(clients[2]->is_ended());  // it was idle for longest
    CHECK(clients[0]->ask("POST", "/echo", "x").status == 200);
    running.on_thread([&] { exchange->respond({.body = "{}"}); });
    CHECK(clients[1]->read_answer().status == 200);
  }
  SECTION("bodies") {
    const std::string body(100'000, 'x');
    HttpClient first(running.port), second(running.port);
    first.send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + body);
    const auto exchange = running.handler.wait_for_kept();
    CHECK(second.ask("POST", "/echo", body).status == 503);
    running.on_thread([&] { exchange->respond({.body = "{}"}); });
    CHECK(first.read_answer().status == 200);
    HttpClient third(running.port);
    CHECK(third.ask("POST", "/echo", body).status == 200);
  }
}

TEST_CASE("a connection that has closed takes no place, however long the next tick is away") {
  ServerLimits limits;
  limits.connections_max = 8;
  limits.tick = 1h;
  Running running(limits);
  for (int i = 0; i < 100; ++i) {
    CHECK(HttpClient(running.port).ask("POST", "/echo", "x").status == 200);
  }
}

TEST_CASE("a body in chunks leaves the reserve to answers that have begun") {
  const ServerLimits limits = quick_limits();
  // New work may have 50,000 bytes besides one connection.
  Running running(limits, connection_bytes(limits) + 200'000, 150'000);
  HttpClient client(running.port);
  const auto ask = [&](std::size_t bytes) {
    client.send(head_of("POST /echo") + fmt::format("{:x}\r\n", bytes) + std::string(bytes, 'x') +
                "\r\n0\r\n\r\n");
    return client.read_answer().status;
  };
  CHECK(ask(20'000) == 200);
  CHECK(ask(90'000) == 503);
  CHECK(client.is_ended());
  client.close();
  wait_for([&] { return running.allowance.used() == 0; });
}

TEST_CASE("what an upload holds comes out of the memory for clients") {
  const ServerLimits limits = quick_limits();
  const std::string head = "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
  {
    Running running(limits);
    HttpClient client(running.port);
    client.send(head + "a");
    wait_for([&] { return running.handler.sunk_bytes == 1; });
    CHECK(running.allowance.used() > connection_bytes(limits));
    client.send("bc");
    CHECK(client.read_answer().body == "3");
    client.close();
    wait_for([&] { return running.allowance.used() == 0; });
  }
  Running full(limits, connection_bytes(limits) + 10'000);
  HttpClient client(full.port);
  client.send(head);
  CHECK(client.read_answer().status == 503);
}
