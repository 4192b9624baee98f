#include "core/http/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "core/http/connection.h"

namespace sluice::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = Connection::Clock;

constexpr std::string_view full_answer =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    "Content-Length: 102\r\nConnection: close\r\n\r\n"
    "{\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\",\"param\":null,"
    "\"code\":\"overloaded\"}}   ";

// Another one for each start, so that request ids of different runs differ.
std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

std::uint64_t connections_bytes(const ServerLimits& limits) {
  constexpr std::uint64_t buffers = std::uint64_t{64} << 10;  // of a connection, without its output
  constexpr std::uint64_t fields = std::uint64_t{16} << 10;
  // Few clients stall at the same time, and each that does is cut off soon.
  constexpr std::uint64_t stalled = 8;
  return limits.connections_max * (buffers + fields + 2 * limits.head_bytes_max) +
         limits.bodies_bytes_max + stalled * 2 * limits.output_bytes_max;
}

class Server::Impl {
 public:
  Impl(std::vector<Listener> listeners, const ServerLimits& limits, Handler& handler)
      : state_{.limits = limits, .handler = handler}, timer_(io_) {
    state_.id_prefix = random_prefix();
    for (Listener& listener : listeners) {
      // The descriptor is Asio's from now on, the file of a path is not.
      doors_.push_back(std::make_unique<Door>(std::move(listener), io_));
    }
  }

  // Nobody runs the server any more, so this thread may close what is left.
  ~Impl() { close_all(); }

  void run() {
    for (const auto& door : doors_) wait_at(*door);
    wait_for_tick();
    io_.run();
    close_all();
    io_.restart();
    io_.poll();  // lets go of what the connections have begun
  }

  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }

  void stop(std::chrono::milliseconds grace) {
    post([this, grace] {
      if (std::exchange(state_.is_stopping, true)) return;
      deadline_ = Clock::now() + grace;
      doors_.clear();
      for (const auto& connection : connections_) connection->wind_down();
      look_whether_done();
    });
  }

  std::function<void()> look;
  const ServerState& state() const { return state_; }

 private:
  struct Door {
    Door(Listener&& given, asio::io_context& io)
        : listener(std::move(given)), socket(io, ::dup(listener.descriptor())) {}
    Listener listener;
    asio::posix::stream_descriptor socket;
    bool is_waiting = false;
  };

  void wait_at(Door& door) {
    door.is_waiting = true;
    door.socket.async_wait(asio::posix::stream_descriptor::wait_read,
                           [this, &door](const error_code& problem) {
                             if (problem) return;  // the door is gone
                             door.is_waiting = false;
                             let_in(door);
                           });
  }

  // Without room for another descriptor, connections wait in their queue until the next tick.
  void let_in(Door& door) {
    const int descriptor =
        ::accept4(door.listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0) {
      welcome(descriptor, door.listener.family());
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return;
    }
    wait_at(door);
  }

  void welcome(int descriptor, Listener::Family family) {
    ++state_.counts.accepted;
    if (connections_.size() >= state_.limits.connections_max) forget_closed();
    if (connections_.size() >= state_.limits.connections_max) {
      ++state_.counts.refused;
      static_cast<void>(
          ::send(descriptor, full_answer.data(), full_answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
      ::close(descriptor);
      return;
    }
    const bool is_tcp = family != Listener::Family::local;
    const int on = 1;
    if (is_tcp) ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int domain = family == Listener::Family::ipv4   ? AF_INET
                       : family == Listener::Family::ipv6 ? AF_INET6
                                                          : AF_UNIX;
    Connection::Socket socket(io_);
    socket.assign(asio::generic::stream_protocol(domain, is_tcp ? IPPROTO_TCP : 0), descriptor);
    connections_.push_back(std::make_shared<Connection>(std::move(socket), state_));
    connections_.back()->start();
  }

  void wait_for_tick() {
    timer_.expires_after(state_.limits.tick);
    timer_.async_wait([this](const error_code& problem) {
      if (problem) return;
      tick();
      wait_for_tick();
    });
  }

  void tick() {
    const Clock::time_point now = Clock::now();
    for (const auto& connection : connections_) connection->tick(now);
    forget_closed();
    for (const auto& door : doors_) {
      if (!door->is_waiting) wait_at(*door);
    }
    if (look) look();
    look_whether_done();
  }

  void forget_closed() {
    std::erase_if(connections_, [](const auto& connection) { return connection->is_closed(); });
  }

  void look_whether_done() {
    if (!state_.is_stopping) return;
    forget_closed();
    if (connections_.empty() || Clock::now() >= deadline_) io_.stop();
  }

  void close_all() {
    for (const auto& connection : connections_) connection->close();
    connections_.clear();
    doors_.clear();
  }

  ServerState state_;
  asio::io_context io_{1};
  asio::steady_timer timer_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::vector<std::shared_ptr<Connection>> connections_;
  Clock::time_point deadline_;
};

Server::Server(std::vector<Listener> listeners, const ServerLimits& limits, Handler& handler)
    : impl_(std::make_unique<Impl>(std::move(listeners), limits, handler)) {}
Server::~Server() = default;

void Server::run() {
  impl_->run();
}

void Server::post(std::function<void()> work) {
  impl_->post(std::move(work));
}

void Server::stop(std::chrono::milliseconds grace) {
  impl_->stop(grace);
}

void Server::on_tick(std::function<void()> look) {
  impl_->look = std::move(look);
}

bool Server::is_stopping() const {
  return impl_->state().is_stopping;
}

const ServerCounts& Server::counts() const {
  return impl_->state().counts;
}

}  // namespace sluice::http
