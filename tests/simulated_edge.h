// The HTTP edge of a simulated server, and clients that send and read in pieces, slowly or not at
// all, and go when they like. All of it on the caller's thread, so that it follows from the seed;
// only what a server does after seconds of waiting it does in real time, which here never comes.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/http/api/api.h"
#include "core/http/transport/server.h"
#include "tests/http_client.h"
#include "tests/random_models.h"

namespace sluice::test {

// What a client asks for, until it has got it or has gone for good.
struct Question {
  std::string body;      // of POST /v1/completions
  std::string expected;  // the text of the answer
  bool has_ended = false;
};

class SimulatedEdge {
 public:
  using Violation = std::function<void(const std::string& what)>;

  // The questions and the service outlive this.
  SimulatedEdge(const std::filesystem::path& socket, serve::Service& service,
                std::shared_ptr<const rows::TaskMaker> maker, std::vector<Question>& questions,
                std::uint64_t seed, Violation violation)
      : socket_(socket),
        random_(seed),
        violation_(std::move(violation)),
        allowance_(std::uint64_t{1} << 20),
        api_({}, allowance_),
        server_(listeners(socket), limits(), api_, allowance_) {
    api_.attach(server_);
    api_.set_model({.service = &service, .maker = std::move(maker), .name = "simulated"});
    for (Question& question : questions) {
      if (question.has_ended) continue;
      clients_.emplace_back();
      clients_.back().question = &question;
    }
    server_.poll();
    idle_bytes_ = allowance_.used();
  }

  bool is_done() const {
    return std::ranges::all_of(clients_, [](const Client& c) { return c.question->has_ended; });
  }

  // Some client does something, and then the server.
  void turn() {
    for (Client& client : clients_) {
      if (!client.question->has_ended && chance(random_, 2)) act(client);
    }
    server_.poll();
  }

  // Nothing is held for clients that have gone.
  void end() {
    for (Client& client : clients_) client.socket.close();
    for (int i = 0; i < 4; ++i) server_.poll();
    if (server_.counts().defects != 0) violation_("the server has thrown what nobody expected");
    if (server_.counts().connections != 0 || allowance_.used() != idle_bytes_) {
      violation_("the server holds something for clients that have gone");
    }
  }

  std::uint64_t answers = 0, refusals = 0, vanished = 0;

 private:
  struct Client {
    Question* question = nullptr;
    base::Descriptor socket = {};
    std::string unsent = {}, received = {};
    bool streams = false;
    std::uint64_t piece = 0;     // bytes that it sends or reads at a time
    std::uint64_t patience = 0;  // actions before it goes
    std::uint64_t pause = 0;     // actions before it comes
  };

  static std::vector<http::Listener> listeners(const std::filesystem::path& socket) {
    std::vector<http::Listener> all;
    all.push_back(http::Listener::on_path(socket));
    return all;
  }
  static http::ServerLimits limits() {
    http::ServerLimits limits;
    limits.connections_max = 6;
    limits.output_bytes_max = 8192;
    return limits;
  }

  void come(Client& client) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_.c_str(), sizeof address.sun_path - 1);
    client.socket =
        base::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(client.socket.number(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) != 0) {
      client.socket.close();  // its queue is full
      return;
    }
    client.streams = chance(random_, 2);
    std::string body = client.question->body;
    if (client.streams) body.replace(body.size() - 1, 1, R"(,"stream":true})");
    client.unsent =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    client.received.clear();
    client.piece = chance(random_, 3) ? 1 + random_() % 16 : 1000;
    client.patience = chance(random_, 6) ? random_() % 200 : ~std::uint64_t{0};
  }

  void act(Client& client) {
    if (client.pause != 0) {
      --client.pause;
      return;
    }
    if (!client.socket.is_open()) return come(client);
    if (client.patience-- == 0) {
      ++vanished;
      client.question->has_ended = true;
      return client.socket.close();
    }
    if (!client.unsent.empty()) {
      const std::size_t bytes = std::min<std::size_t>(client.piece, client.unsent.size());
      const ssize_t sent =
          ::send(client.socket.number(), client.unsent.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) client.unsent.erase(0, static_cast<std::size_t>(sent));
      if (sent >= 0 || errno == EAGAIN) return;
      client.unsent.clear();  // the server does not want it: it has answered
    }
    std::array<char, 1000> piece{};
    const ssize_t got = ::recv(client.socket.number(), piece.data(), client.piece, MSG_DONTWAIT);
    if (got > 0) client.received.append(piece.data(), static_cast<std::size_t>(got));
    if (got > 0 || (got < 0 && errno == EAGAIN)) return;
    client.socket.close();
    judge(client);
  }

  // A client that was refused, or whose answer says that the machine has failed, comes again.
  void judge(Client& client) {
    const auto again = [&] {
      ++refusals;
      client.pause = random_() % 200;
    };
    std::string text;
    try {
      const Answer answer = HttpClient(client.received).read_answer();
      if (answer.status == 429 || answer.status == 503) return again();
      if (answer.body.find("try again later") != std::string::npos) return again();
      if (answer.status != 200) {
        return violation_("a client got status " + std::to_string(answer.status) + ": " +
                          answer.body);
      }
      if (client.streams ? !read_stream(answer.body, text) : !read_whole(answer.body, text)) {
        return again();
      }
    } catch (const std::exception& error) {
      if (server_.counts().cut_off != 0 || client.received.empty()) return again();
      return violation_("a client got a bad answer: " + std::string(error.what()) + ": " +
                        client.received);
    }
    ++answers;
    client.question->has_ended = true;
    if (text == client.question->expected) return;
    violation_("a client got another text than alone: " + text + " and not " +
               client.question->expected);
  }

  static bool read_whole(const std::string& body, std::string& text) {
    text = nlohmann::json::parse(body).at("choices").at(0).at("text").get<std::string>();
    return true;
  }
  // Returns false where it ends with an error.
  static bool read_stream(std::string_view body, std::string& text) {
    while (!body.empty()) {
      const std::size_t end = body.find("\n\n");
      if (end == std::string_view::npos) throw std::runtime_error("an event has no end");
      const std::string_view event = body.substr(0, end);
      body.remove_prefix(end + 2);
      if (!event.starts_with("data: ")) continue;  // a comment
      if (event == "data: [DONE]") return true;
      const auto data = nlohmann::json::parse(event.substr(6));
      if (data.contains("error")) return false;
      for (const auto& choice : data.at("choices")) text += choice.at("text").get<std::string>();
    }
    throw std::runtime_error("a stream ended before its end");
  }

  std::filesystem::path socket_;
  Random random_;
  Violation violation_;
  Allowance allowance_;
  http::Api api_;
  http::Server server_;
  std::uint64_t idle_bytes_ = 0;
  std::vector<Client> clients_;
};

}  // namespace sluice::test
