// Sequences of clients: what each of three sends, then CHOICES of who sends, reads, goes or comes
// again. Whatever they do, the server holds nothing once they are gone, and answers the next one.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/http/transport/server.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

constexpr std::size_t clients_count = 3;
constexpr std::uint64_t body_bytes_max = 4096;

std::filesystem::path socket_path() {
  return scratch_folder() / "socket";
}

class LosingSink final : public http::BodySink {
 public:
  void take(std::string_view piece) override {
    if (piece.find("full") != std::string_view::npos) throw http::ApiError(507, "full");
  }
};

// Answers at once, in pieces, or a while later; all on the server's thread.
class EchoHandler final : public http::Handler {
 public:
  http::Reception receive(const http::RequestHead& head) override {
    http::Reception reception;
    reception.body_bytes_max = head.path == "/none" ? 0 : body_bytes_max;
    if (head.path == "/sink") reception.sink = std::make_shared<LosingSink>();
    return reception;
  }
  void handle(std::shared_ptr<http::Exchange> exchange) override {
    http::Request& request = exchange->request();
    require(request.body.size() <= body_bytes_max, "a body is bounded");
    if (request.head.path == "/wait") return waiting_.push_back(std::move(exchange));
    std::string body = std::move(request.body);
    request.drop_body();
    if (request.head.path != "/stream") {
      return exchange->respond({.type = "text/plain", .body = std::move(body)});
    }
    exchange->begin_stream();
    for (int i = 0; i < 20; ++i) exchange->send(body + "\n");
    exchange->end_stream();
  }
  http::Response refuse(const http::ApiError& error) override {
    return {.status = error.status, .type = "text/plain", .body = error.what()};
  }
  void report(const std::string& /*problem*/) override {}
  void log(const http::Request& /*request*/, unsigned /*status*/,
           std::chrono::milliseconds /*took*/) override {}

  void answer_waiting() {
    for (const auto& exchange : std::exchange(waiting_, {})) exchange->respond({.body = "{}"});
  }

 private:
  std::vector<std::shared_ptr<http::Exchange>> waiting_;
};

// One server for all inputs. It is never destroyed, as the process ends in the middle of it.
class EchoServer {
 public:
  EchoServer()
      : allowance_(8 * http::connection_bytes(limits())),
        server_(listeners(), limits(), handler_, allowance_),
        idle_bytes_(allowance_.used()) {
    server_.on_tick([this] { handler_.answer_waiting(); });
    thread_ = std::thread([this] { server_.run(); });
  }

  void wait_until_idle() {
    for (int i = 0; i < 10'000; ++i) {
      const http::ServerCounts counts = this->counts();
      require(counts.defects == 0, "nothing is thrown that nobody expected");
      if (counts.connections == 0 && allowance_.used() == idle_bytes_) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    require(false, "what was held for clients is given back once they are gone");
  }

 private:
  static http::ServerLimits limits() {
    http::ServerLimits limits;
    limits.head_bytes_max = 2048;
    limits.connections_max = clients_count + 1;
    limits.output_bytes_max = 16384;
    limits.tick = std::chrono::milliseconds(2);
    return limits;
  }
  static std::vector<http::Listener> listeners() {
    std::vector<http::Listener> all;
    all.push_back(http::Listener::on_path(socket_path()));
    return all;
  }
  http::ServerCounts counts() {
    std::promise<http::ServerCounts> counts;
    server_.post([&] { counts.set_value(server_.counts()); });
    return counts.get_future().get();
  }

  Allowance allowance_;
  EchoHandler handler_;
  http::Server server_;
  std::uint64_t idle_bytes_;
  std::thread thread_;
};

class Client {
 public:
  explicit Client(std::string_view text) : rest_(text) {}

  void act(Choices& choices) {
    if (!socket_.is_open()) connect();
    switch (choices.below(6)) {
      case 0:
      case 1:
        return send(choices.piece_of(rest_), MSG_DONTWAIT);
      case 2:
        return send(std::exchange(rest_, {}), MSG_DONTWAIT);
      case 3: {
        std::array<char, 256> piece{};
        static_cast<void>(
            ::recv(socket_.number(), piece.data(), 1 + choices.below(piece.size()), MSG_DONTWAIT));
        return;
      }
      case 4:
        static_cast<void>(::shutdown(socket_.number(), SHUT_WR));
        return;
      default:
        socket_ = base::Descriptor();
    }
  }

  // The whole answer to a text after which the server closes the connection.
  std::string ask() {
    connect();
    send(rest_, 0);
    std::string answer;
    std::array<char, 1024> piece{};
    while (true) {
      const ssize_t got = ::recv(socket_.number(), piece.data(), piece.size(), 0);
      if (got < 0 && errno == EINTR) continue;  // by libFuzzer's clock
      if (got <= 0) return answer;
      answer.append(piece.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  void connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path().c_str(), sizeof address.sun_path - 1);
    socket_ = base::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof address) == 0,
            "a server takes connections");
  }
  void send(std::string_view bytes, int flags) {
    static_cast<void>(::send(socket_.number(), bytes.data(), bytes.size(), flags | MSG_NOSIGNAL));
  }

  std::string_view rest_;
  base::Descriptor socket_;
};

}  // namespace

void run(std::string_view input) {
  static EchoServer& server = *new EchoServer;
  const auto parts = split(input, clients_count + 1);
  {
    std::vector<Client> clients(parts.begin(), parts.end() - 1);
    for (Choices choices(parts.back()); !choices.is_empty();) {
      clients[choices.below(clients_count)].act(choices);
    }
  }
  server.wait_until_idle();
  Client last("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
  const std::string answer = last.ask();
  require(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello"),
          "whoever comes next is answered");
}

std::vector<std::string> seeds() {
  const std::string get = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string post =
      "POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello";
  const std::string chunked =
      "POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n0\r\n\r\n";
  const auto choices = [](std::initializer_list<int> all) {
    return std::string(all.begin(), all.end());
  };
  return {joined({get + post, post + get, chunked, choices({0, 2, 1, 2, 2, 2, 0, 5, 1, 3, 9})}),
          joined({chunked + post, get + get, "GET /none HTTP/1.0\r\n\r\n",
                  choices({0, 0, 30, 1, 1, 9, 0, 4, 1, 2, 1, 4, 2, 2, 2, 3, 99})}),
          joined({post + post, "\r\n", get, choices({0, 0, 60, 0, 5, 0, 2, 2, 2, 2, 5, 2, 2})})};
}

}  // namespace sluice::fuzz
