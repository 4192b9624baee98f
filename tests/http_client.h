// A client of HTTP for tests: sends bytes as they are, and reads answers strictly.
#pragma once

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sluice::test {

struct Answer {
  int status = 0;
  std::string head;
  std::string body;  // without the marks of its chunks
  std::string field(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

// Reading waits for at most this long, so that a test fails rather than hangs.
inline constexpr int wait_milliseconds_max = 60'000;

// The data of the events of a streamed response (of the Responses API), which name their type
// twice.
inline std::vector<std::string> response_events(const std::string& body) {
  std::vector<std::string> events;
  for (std::size_t begin = 0; begin < body.size();) {
    const std::size_t line = body.find("\ndata: ", begin), end = body.find("\n\n", begin);
    if (line == std::string::npos || end == std::string::npos) throw std::runtime_error(body);
    const std::string name = body.substr(begin, line - begin);
    events.push_back(body.substr(line + 7, end - line - 7));
    if (!name.starts_with("event: response.") ||
        !events.back().starts_with("{\"type\":\"" + name.substr(7) + "\"")) {
      throw std::runtime_error("not an event of a response: " + body.substr(begin, end - begin));
    }
    begin = end + 2;
  }
  return events;
}

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, int receive_buffer = 0) {
    descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer != 0) {
      ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  // Of a connection that has ended, after which this had come.
  explicit HttpClient(std::string everything) : received(std::move(everything)) {}
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  // Returns whether all was sent.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // Receives more; false at the end.
  bool receive() {
    if (descriptor_ < 0) return false;
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, wait_milliseconds_max) <= 0) throw std::runtime_error("no answer");
    char piece[16384];
    const ssize_t n = ::recv(descriptor_, piece, sizeof piece, 0);
    if (n <= 0) return false;
    received.append(piece, static_cast<std::size_t>(n));
    return true;
  }

  // Whether something has come, or the end.
  bool has_received() const {
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return !received.empty() || ::poll(&waiting, 1, 0) > 0;
  }

  bool is_ended() {
    while (receive()) {
    }
    return true;
  }

  std::string read_head() {
    std::size_t end = 0;
    while ((end = received.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) throw std::runtime_error("the connection ended in a head: " + received);
    }
    std::string head = received.substr(0, end + 2);
    received.erase(0, end + 4);
    return head;
  }

  // One chunk of a stream; empty at its end.
  std::string read_chunk() {
    std::size_t line = 0;
    while ((line = received.find("\r\n")) == std::string::npos) need_more();
    const std::size_t size = std::stoul(received.substr(0, line), nullptr, 16);
    while (received.size() < line + 2 + size + 2) need_more();
    std::string chunk = received.substr(line + 2, size);
    if (received.substr(line + 2 + size, 2) != "\r\n") throw std::runtime_error("bad chunk");
    received.erase(0, line + 2 + size + 2);
    return chunk;
  }

  Answer read_answer(bool has_body = true) {
    Answer answer;
    answer.head = read_head();
    if (!answer.head.starts_with("HTTP/1.1 ")) throw std::runtime_error("bad: " + answer.head);
    answer.status = std::atoi(answer.head.c_str() + 9);
    if (!has_body || answer.status == 204) return answer;
    if (answer.field("Transfer-Encoding") == "chunked") {
      for (std::string chunk = read_chunk(); !chunk.empty(); chunk = read_chunk()) {
        answer.body += chunk;
      }
      return answer;
    }
    if (answer.field("Content-Length").empty()) {
      while (receive()) {
      }
      answer.body = std::exchange(received, "");
      return answer;
    }
    const std::size_t size = std::stoul(answer.field("Content-Length"));
    while (received.size() < size) need_more();
    answer.body = received.substr(0, size);
    received.erase(0, size);
    return answer;
  }

  Answer ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& fields = "") {
    send(method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" +
         body);
    return read_answer(method != "HEAD");
  }

  int descriptor() const { return descriptor_; }
  std::string received;  // and not yet read

 private:
  void need_more() {
    if (!receive()) throw std::runtime_error("the connection ended in an answer: " + received);
  }

  int descriptor_ = -1;
};

}  // namespace sluice::test
