// The HTTP server without the API: requests in any pieces, hostile bytes, limits, slow clients, and
// how it ends.
#include <atomic>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <sys/un.h>
#include <thread>

#include "core/http/request_reader.h"
#include "core/http/server.h"
#include "core/http/systemd.h"
#include "tests/catch.h"
#include "tests/http_client.h"
#include "tests/random_seed.h"
#include "tests/temporary_folder.h"

using namespace sluice::http;
using namespace std::chrono_literals;
using sluice::test::Answer;
using sluice::test::HttpClient;

namespace {

// Answers by path. All members but the atomics belong to the server's thread.
class TestHandler final : public Handler {
 public:
  Reception receive(const RequestHead& head) override {
    Reception reception;
    reception.body_bytes_max = head.path == "/small" ? 10 : 100'000;
    if (head.path == "/refused") reception.refusal = std::make_unique<Response>(refuse(401, "no"));
    if (head.path == "/throws") throw std::runtime_error("thrown");
    return reception;
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    const Request& request = exchange->request();
    if (request.head.path == "/echo") {
      exchange->respond({.type = "text/plain", .body = request.body});
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
  Response refuse(unsigned status, const std::string& reason) override {
    return {.status = status, .type = "text/plain", .body = reason};
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
  std::atomic<int> gone{0}, logged{0};
  std::atomic<unsigned> last_status{0};
  std::string path_of_file;

 private:
  void send_file(Exchange& exchange) const {
    const int descriptor = ::open(path_of_file.c_str(), O_RDONLY | O_CLOEXEC);
    Response response{.type = "text/plain", .body = {}};
    response.file = {std::shared_ptr<const int>(new int(descriptor),
                                                [](const int* d) {
                                                  ::close(*d);
                                                  delete d;
                                                }),
                     static_cast<std::uint64_t>(::lseek(descriptor, 0, SEEK_END))};
    exchange.respond(std::move(response));
  }
};

ServerLimits quick_limits() {
  ServerLimits limits;
  limits.tick = 5ms;
  return limits;
}

// A server on a free port, with a thread of its own.
class Running {
 public:
  explicit Running(const ServerLimits& limits = quick_limits()) {
    std::vector<Listener> listeners;
    listeners.push_back(Listener::on_port("localhost", 0));
    port = listeners.front().port();
    server = std::make_unique<Server>(std::move(listeners), limits, handler);
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

  TestHandler handler;
  std::uint16_t port = 0;
  std::atomic<std::uint64_t> connections{0};
  std::unique_ptr<Server> server;
  std::thread thread;
};

void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  REQUIRE(condition());
}

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
        reader.take_body(1000, nullptr);
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
  } catch (const BadRequest& bad) {
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

TEST_CASE("what is no request is refused with the status that says why") {
  const std::string host = "Host: x\r\n";
  const std::map<std::string, unsigned> cases = {
      {"hello\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS \r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
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
  for (const char* bytes : {"hello\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\r\n\r\n\r\n\r\n"}) {
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

TEST_CASE("slow clients lose their connection") {
  ServerLimits limits = quick_limits();
  limits.head_time = limits.stall = limits.idle_time = limits.body_time = 50ms;
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
    while (client.send("x")) std::this_thread::sleep_for(2ms);
    SUCCEED();
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

TEST_CASE("connections and bodies beyond the limits are refused, and room comes back") {
  ServerLimits limits = quick_limits();
  limits.connections_max = 3;
  limits.bodies_bytes_max = 150'000;
  Running running(limits);
  SECTION("connections") {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<HttpClient>(running.port));
    for (const auto& client : clients) CHECK(client->ask("POST", "/echo", "x").status == 200);
    HttpClient one_too_many(running.port);
    CHECK(one_too_many.read_answer().status == 503);
    CHECK(one_too_many.is_ended());
    clients.pop_back();
    wait_for([&] { return running.connections == 2; });
    CHECK(HttpClient(running.port).ask("POST", "/echo", "x").status == 200);
  }
  SECTION("bodies") {
    const std::string body(90'000, 'x');
    HttpClient first(running.port), second(running.port);
    first.send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n" + body);
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

TEST_CASE("a server listens on a path, for its user alone, and takes the file away") {
  const sluice::test::TemporaryFolder folder;
  const std::string path = (folder.path() / "s").string();
  TestHandler handler;
  {
    std::vector<Listener> listeners;
    listeners.push_back(Listener::on_path(path));
    CHECK(listeners.front().is_local());
    CHECK(listeners.front().name() == "unix:" + path);
    const auto mode = std::filesystem::status(path).permissions();
    CHECK(mode == (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK_THROWS(Listener::on_path(path));  // it is in use
    Server server(std::move(listeners), quick_limits(), handler);
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
  std::ofstream(path) << "a file of somebody";
  CHECK_THROWS(Listener::on_path(path));
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("the service manager hears what the server says") {
  const sluice::test::TemporaryFolder folder;
  const std::string path = (folder.path() / "notify").string();
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  const ServiceManager manager;
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
  CHECK(manager.watchdog_period() == 3s);
  manager.notify("READY=1\nSTATUS=serving");
  char text[100];
  const ssize_t size = ::recv(descriptor, text, sizeof text, MSG_DONTWAIT);
  ::close(descriptor);
  CHECK(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))) ==
        "READY=1\nSTATUS=serving");
  manager.notify("WATCHDOG=1");  // nobody listens any more, which is no error
  CHECK_FALSE(ServiceManager().watchdog_period().has_value());
}
