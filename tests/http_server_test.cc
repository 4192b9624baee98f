// The HTTP server without the API: requests in any pieces, hostile bytes, limits, slow clients, and
// how it ends.
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "core/http/transport/request_reader.h"
#include "core/http/transport/server.h"
#include "core/http/transport/worker.h"
#include "tests/catch.h"
#include "tests/http_client.h"
#include "tests/http_support.h"
#include "tests/random_seed.h"
#include "tests/temporary_folder.h"

using namespace sluice::http;
using namespace std::chrono_literals;
using sluice::test::Answer;
using sluice::test::HttpClient;
using sluice::test::quick_limits;
using sluice::test::Running;
using sluice::test::TestHandler;
using sluice::test::wait_for;

namespace {

struct Read {
  RequestHead head;
  std::string body;
  std::size_t taken = 0;
};

// Reads a request that comes in pieces of the given sizes, round and round.
Read read_in_pieces(std::string_view bytes, const std::vector<std::size_t>& sizes) {
  RequestReader reader(4096);
  std::string waiting;
  Read read;
  std::size_t given = 0;
  bool has_head = false;
  for (std::size_t i = 0; reader.state() != RequestReader::State::complete; ++i) {
    if (given == bytes.size() && i > bytes.size() + 10) throw std::runtime_error("incomplete");
    const std::size_t size = std::min(sizes[i % sizes.size()], bytes.size() - given);
    waiting += bytes.substr(given, size);
    given += size;
    for (std::size_t taken = 1; taken != 0;) {
      taken = reader.take(waiting);
      waiting.erase(0, taken);
      read.taken += taken;
      if (!has_head && reader.state() != RequestReader::State::head) {
        has_head = true;
        reader.take_body(1000);
        taken = 1;
      }
    }
  }
  read.head = reader.head();
  read.body = reader.body();
  return read;
}

unsigned status_of(std::string_view bytes) {
  try {
    read_in_pieces(bytes, {bytes.size()});
  } catch (const ApiError& bad) {
    return bad.status;
  }
  return 200;
}

}  // namespace

TEST_CASE("a request is read the same however its bytes are cut") {
  const std::string plain =
      "POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nX-One:  two \r\ncontent-length: 5\r\n\r\nhello";
  const std::string chunked =
      "POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nX-One: two\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-Late: 1\r\n\r\n";
  for (const std::string& bytes : {plain, chunked}) {
    for (std::size_t first = 1; first < bytes.size(); ++first) {
      for (const std::size_t then : {1, 2, 7, 1000}) {
        const Read read = read_in_pieces(bytes + "GET ", {first, then});
        CHECK(read.body == "hello");
        CHECK(read.taken == bytes.size());
        CHECK(read.head.method == "POST");
        CHECK(read.head.path == "/a/b");
        CHECK(read.head.query == "c=d");
        CHECK(read.head.field("x-one") == "two");
        CHECK(read.head.field("X-Late").empty());
        CHECK(read.head.keeps_alive);
      }
    }
  }
}

// The parser's own assertions hold only in builds that keep them: debug and sanitizers.
TEST_CASE("an empty body in chunks may come byte by byte") {
  const std::string head = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string body :
       {"0\r\n\r\n", "000\r\n\r\n", "0;a=b\r\n\r\n", "0\r\nX: 1\r\n\r\n"}) {
    INFO(body);
    for (std::size_t first = 1; first < head.size() + body.size(); ++first) {
      for (const std::size_t then : {0, 1, 2, 3}) {  // 0: what is there is given twice
        const Read read = read_in_pieces(head + body + "GET ", {first, then, 1});
        CHECK(read.taken == head.size() + body.size());
        CHECK(read.body.empty());
      }
    }
  }
}

TEST_CASE("a body that looks like a last chunk is read when it is no chunk") {
  const std::string head = "POST /a HTTP/1.1\r\nHost: x\r\n";
  const std::string whole = head + "Content-Length: 4\r\n\r\n0\r\nx";
  const std::string in_chunks = head + "Transfer-Encoding: chunked\r\n\r\n4\r\n0\r\nx\r\n0\r\n\r\n";
  for (const std::string& request : {whole, in_chunks}) {
    for (std::size_t first = 1; first < request.size(); ++first) {
      const Read read = read_in_pieces(request, {first, request.size() - first});
      CHECK(read.taken == request.size());
      CHECK(read.body == "0\r\nx");
    }
  }
}

TEST_CASE("what is no request is refused with the status that says why") {
  const std::string host = "Host: x\r\n";
  const std::map<std::string, unsigned> cases = {
      {"hello\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS \r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host +
           "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       501},
      {"GET nowhere HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "no colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "A : b\r\n\r\n", 400},
      {"GET / HTTP/1.1\n" + host + "\n\n\n\n", 505},  // after a line feed alone, no version
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host +
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1001\r\n\r\n" + std::string(1001, 'x'), 413},
      {"GET /" + std::string(5000, 'x') + " HTTP/1.1\r\n" + host + "\r\n", 431},
      {"GET / HTTP/1.1\r\n" + host + "X: " + std::string(5000, 'x') + "\r\n\r\n", 431},
  };
  for (const auto& [bytes, status] : cases) {
    INFO(bytes.substr(0, 200));
    CHECK(status_of(bytes) == status);
  }
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (int i = 0; i < 200; ++i) many += "A: b\r\n";
  CHECK(status_of(many + "\r\n") == 431);
}

TEST_CASE("random damage to a request is refused or read, and nothing worse") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string good =
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\n";
  constexpr std::string_view signs = "\r\n\0 :0f;x\xff";
  int refused = 0, read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (std::uint64_t changes = 1 + random() % 4; changes != 0; --changes) {
      const std::size_t at = random() % bytes.size();
      const char sign = signs[random() % signs.size()];
      if (random() % 3 == 0) {
        bytes.erase(at, 1 + random() % 5);
      } else if (random() % 2 == 0) {
        bytes.insert(at, 1, sign);
      } else {
        bytes[at] = sign;
      }
    }
    try {
      read_in_pieces(bytes, {1 + random() % 40, 1 + random() % 40});
      ++read;
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
  CHECK(read > 100);
}

TEST_CASE("a connection serves one request after the other, also those sent ahead") {
  Running running;
  HttpClient client(running.port);
  std::string all;
  for (int i = 0; i < 50; ++i) {
    const std::string body = "number " + std::to_string(i);
    all += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  }
  REQUIRE(client.send(all));
  std::map<std::string, int> ids;
  for (int i = 0; i < 50; ++i) {
    const Answer answer = client.read_answer();
    CHECK(answer.status == 200);
    CHECK(answer.body == "number " + std::to_string(i));
    ++ids[answer.field("X-Request-Id")];
  }
  CHECK(ids.size() == 50);
  CHECK(client.ask("HEAD", "/echo").field("Content-Length") == "0");
  CHECK(client.ask("POST", "/throws", "x").status == 500);
  CHECK(client.is_ended());  // a request that was not read to its end is the last one
}

TEST_CASE("a request that is refused gets its answer even when its body is not read") {
  Running running;
  for (const char* path : {"/refused", "/small"}) {
    HttpClient client(running.port);
    client.send("POST " + std::string(path) +
                " HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" + std::string(50000, 'x'));
    const Answer answer = client.read_answer();
    CHECK(answer.status == (path == std::string("/small") ? 413 : 401));
    CHECK(answer.field("Connection") == "close");
    CHECK(client.is_ended());
  }
  HttpClient client(running.port);
  CHECK(client.ask("GET", "/refused").status == 401);
  CHECK(client.ask("POST", "/echo", "still here").body == "still here");
}

TEST_CASE("a client that waits for a sign to go on gets it") {
  Running running;
  HttpClient client(running.port);
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.read_head().starts_with("HTTP/1.1 100 "));
  client.send("ab");
  CHECK(client.read_answer().body == "ab");
}

TEST_CASE("malformed bytes on a connection do not disturb others") {
  Running running;
  HttpClient good(running.port);
  for (const char* bytes : {"hello\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\n\r\n\r\n\r\n"}) {
    HttpClient bad(running.port);
    bad.send(bytes);
    CHECK(bad.read_answer().status == 400);
    CHECK(bad.is_ended());
    CHECK(good.ask("POST", "/echo", "fine").body == "fine");
  }
}

TEST_CASE("a file is sent in pieces, whole") {
  const sluice::test::TemporaryFolder folder;
  Running running;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i);
  running.handler.path_of_file = (folder.path() / "f").string();
  std::ofstream(running.handler.path_of_file) << text;
  HttpClient client(running.port);
  const Answer answer = client.ask("GET", "/file");
  CHECK(answer.body.size() == text.size());
  CHECK(answer.body == text);
  CHECK(client.ask("POST", "/echo", "next").body == "next");
}

TEST_CASE("a client that has said all it had to say gets the whole answer") {
  const sluice::test::TemporaryFolder folder;
  Running running;
  const std::string text(1'000'000, 'x');
  running.handler.path_of_file = (folder.path() / "f").string();
  std::ofstream(running.handler.path_of_file) << text;
  const std::string ahead = GENERATE(std::string(), std::string(60'000, 'y'));
  HttpClient client(running.port, 4096);
  REQUIRE(client.send("GET /file HTTP/1.1\r\nHost: x\r\n\r\n" + ahead));
  REQUIRE(::shutdown(client.descriptor(), SHUT_WR) == 0);
  std::this_thread::sleep_for(50ms);  // the server looks at its clients meanwhile
  const Answer answer = client.read_answer();
  CHECK(answer.status == 200);
  CHECK(answer.body == text);
}

TEST_CASE("the server knows when a client has gone") {
  Running running;
  SECTION("while it waits") {
    auto client = std::make_unique<HttpClient>(running.port);
    client->send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    running.handler.wait_for_kept();
    client.reset();
  }
  SECTION("although it has sent much ahead") {
    auto client = std::make_unique<HttpClient>(running.port);
    client->send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(60'000, 'x'));
    running.handler.wait_for_kept();
    client.reset();
  }
  wait_for([&] { return running.handler.gone == 1; });
  wait_for([&] { return running.connections == 0; });
  CHECK(running.handler.last_status == 0);
  // What is done with its exchange later has no effect.
  running.on_thread([&] { running.handler.kept.back()->respond({.body = "late"}); });
  CHECK(running.handler.logged == 1);
}

TEST_CASE("a stream comes in chunks, and comments keep it open") {
  ServerLimits limits = quick_limits();
  limits.comment_period = 20ms;
  Running running(limits);
  HttpClient client(running.port);
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_for_kept();
  running.on_thread([&] {
    exchange->begin_stream();
    exchange->send("data: one\n\n");
  });
  CHECK(client.read_head().find("Content-Type: text/event-stream") != std::string::npos);
  CHECK(client.read_chunk() == "data: one\n\n");
  CHECK(client.read_chunk().starts_with(": "));
  CHECK(client.read_chunk().starts_with(": "));
  running.on_thread([&] {
    exchange->send("data: two\n\n");
    exchange->end_stream();
  });
  std::string chunk = client.read_chunk();
  while (chunk.starts_with(": ")) chunk = client.read_chunk();
  CHECK(chunk == "data: two\n\n");
  CHECK(client.read_chunk().empty());
  CHECK(client.ask("POST", "/echo", "next").body == "next");
}

TEST_CASE("an old client gets a stream that ends with its connection") {
  Running running;
  HttpClient client(running.port);
  client.send("GET /wait HTTP/1.0\r\n\r\n");
  const auto exchange = running.handler.wait_for_kept();
  running.on_thread([&] {
    exchange->begin_stream();
    exchange->send("data: one\n\n");
    exchange->end_stream();
  });
  const Answer answer = client.read_answer();
  CHECK(answer.field("Transfer-Encoding").empty());
  CHECK(answer.body == "data: one\n\n");
}

TEST_CASE("a server that stops lets answers end, within the grace") {
  SECTION("in time") {
    Running running;
    HttpClient client(running.port), idle(running.port);
    CHECK(idle.ask("POST", "/echo", "x").status == 200);
    client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto exchange = running.handler.wait_for_kept();
    running.server->stop(1h);
    CHECK(idle.is_ended());
    CHECK_THROWS(HttpClient(running.port));
    running.on_thread([&] { exchange->respond({.body = "last"}); });
    const Answer answer = client.read_answer();
    CHECK(answer.body == "last");
    CHECK(answer.field("Connection") == "close");
    client.close();
    running.thread.join();
    CHECK(running.handler.gone == 0);
  }
  SECTION("too late") {
    Running running;
    HttpClient client(running.port);
    client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    running.handler.wait_for_kept();
    running.server->stop(30ms);
    CHECK(client.is_ended());
    running.thread.join();
    CHECK(running.handler.gone == 1);
  }
}

TEST_CASE("what runs aside has ended when the server has, and nothing begins after it") {
  Running running;
  std::promise<void> begun;
  std::atomic<bool> has_ended = false, has_followed = false;
  running.server->aside(Lane::texts, [&]() -> Then {
    begun.set_value();
    std::this_thread::sleep_for(50ms);
    has_ended = true;
    return {};
  });
  running.server->aside(Lane::texts, [&]() -> Then {
    has_followed = true;
    return {};
  });
  begun.get_future().wait();
  CHECK(running.server->waiting(Lane::texts) == 1);
  running.server->stop(0ms);
  running.thread.join();
  CHECK(has_ended);
  CHECK(running.server->waiting(Lane::texts) == 0);
  running.server->aside(Lane::texts, [&]() -> Then {
    has_followed = true;
    return {};
  });
  CHECK(running.server->waiting(Lane::texts) == 0);
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(has_followed);
}

TEST_CASE("empty lines before a request are no part of it") {
  Running running;
  HttpClient client(running.port);
  for (const std::string front : {"\r\n", "\r\n\r\n", "\r"}) {
    client.send(front);
    if (front == "\r") {
      std::this_thread::sleep_for(10ms);
      client.send("\n");
    }
    CHECK(client.ask("POST", "/echo", "x").body == "x");
  }
  client.send("\rPOST /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.read_answer().status == 400);
}

TEST_CASE("a program that the server starts gets none of its sockets") {
  const Running running;
  int listening = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename().string());
    int accepts = 0;
    socklen_t size = sizeof accepts;
    ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size);
    if (accepts == 0) continue;
    ++listening;
    CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(listening > 0);
}

TEST_CASE("a server answers on a path, and takes the file away when it ends") {
  const sluice::test::TemporaryFolder folder;
  const std::string path = (folder.path() / "s").string();
  TestHandler handler;
  {
    std::vector<Listener> listeners;
    listeners.push_back(Listener::on_path(path));
    sluice::Allowance allowance(std::uint64_t{1} << 20);
    Server server(std::move(listeners), quick_limits(), handler, allowance);
    std::thread thread([&] { server.run(); });
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    CHECK(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const std::string_view request = "POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc";
    CHECK(::send(descriptor, request.data(), request.size(), 0) > 0);
    std::string answer(1000, '\0');
    std::size_t size = 0;
    for (ssize_t n = 1; n > 0; size += static_cast<std::size_t>(n)) {
      n = ::recv(descriptor, answer.data() + size, answer.size() - size, 0);
    }
    answer.resize(size);
    CHECK(answer.ends_with("\r\n\r\nabc"));
    ::close(descriptor);
    server.stop(0ms);
    thread.join();
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("what is thrown on the server's thread or the worker's ends nothing else") {
  Running running;
  for (int i = 0; i < 3; ++i) running.server->post([] { throw std::runtime_error("a defect"); });
  running.server->post([] { throw 1; });
  std::uint64_t defects = 0;
  running.on_thread([&] { defects = running.server->counts().defects; });
  CHECK(defects == 4);
  Worker worker;
  std::promise<void> done;
  worker.post([] { throw std::runtime_error("a defect"); });
  worker.post([&] { done.set_value(); });
  done.get_future().wait();
}
