#include "core/http/transport/server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/descriptor.h"
#include "core/http/transport/connection.h"
#include "core/http/transport/worker.h"

namespace sluice::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = Connection::Clock;

constexpr std::size_t received_piece_bytes = std::size_t{16} << 10;

// Another one for each start, so that request ids of different runs differ.
std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

ApiError Handler::failure(const std::string& request_id, const std::string& problem) {
  report(fmt::format("{}: {}", request_id, problem));
  return {500, fmt::format("internal error; the log of the server says more ({})", request_id)};
}

class Server::Impl {
 public:
  Impl(std::vector<Listener> listeners, const ServerLimits& limits, Handler& handler,
       Allowance& allowance)
      : state_{.limits = limits,
               .handler = handler,
               .allowance = allowance,
               .aside = [this](Lane lane,
                               std::function<Then()> work) { aside(lane, std::move(work)); },
               .id_prefix = random_prefix(),
               .received_piece = std::vector<char>(received_piece_bytes)},
        timer_(io_) {
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
    run_calls([this] { io_.run(); });
    close_all();
    // What runs aside uses what the caller is going to destroy next.
    texts_.stop();
    files_.stop();
    io_.restart();
    run_calls([this] { io_.poll(); });  // lets go of what the connections have begun
  }

  void poll() {
    if (!std::exchange(is_polled_, true)) {
      for (const auto& door : doors_) wait_at(*door);
    }
    run_calls([this] { io_.poll(); });
    io_.restart();
    tick();
  }

  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }

  void aside(Lane lane, std::function<Then()> work) {
    if (is_polled_) {
      if (Then then = work()) post(std::move(then));
      return;
    }
    Worker& worker = lane == Lane::texts ? texts_ : files_;
    worker.post([this, work = std::move(work)] {
      if (Then then = work()) post(std::move(then));
    });
  }

  std::size_t waiting(Lane lane) { return (lane == Lane::texts ? texts_ : files_).waiting(); }

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
        : listener(std::move(given)),
          socket(io, ::fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 0)) {}
    Listener listener;
    asio::posix::stream_descriptor socket;
    bool is_waiting = false;
  };

  // The last catch of the server's thread: what a call has thrown, a posted one or one of a
  // connection, ends this call alone. Asio goes on with the others when it is run again.
  template <class Run>
  void run_calls(const Run& run) {
    for (bool is_over = false; !is_over;) {
      try {
        run();
        is_over = true;
      } catch (const std::exception& error) {
        ++state_.counts.defects;
        state_.handler.report(error.what());
      } catch (...) {
        ++state_.counts.defects;
      }
    }
  }

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
    base::Descriptor accepted(
        ::accept4(door.listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.is_open()) {
      welcome(std::move(accepted), door.listener);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return;
    }
    wait_at(door);
  }

  void welcome(base::Descriptor accepted, const Listener& listener) {
    ++state_.counts.accepted;
    if (connections_.size() >= state_.limits.connections_max) forget_closed();
    if (connections_.size() >= state_.limits.connections_max) close_idle();
    // Out of the reserve too: whoever asks for little is heard while others send much.
    auto held = state_.allowance.take(0);
    if (connections_.size() >= state_.limits.connections_max ||
        !held->resize(connection_bytes(state_.limits))) {
      return turn_away(accepted.number());
    }
    const Listener::Family family = listener.family();
    const bool is_tcp = family != Listener::Family::local;
    const int on = 1;
    if (is_tcp) ::setsockopt(accepted.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int domain = family == Listener::Family::ipv4   ? AF_INET
                       : family == Listener::Family::ipv6 ? AF_INET6
                                                          : AF_UNIX;
    Socket socket(io_);
    socket.assign(asio::generic::stream_protocol(domain, is_tcp ? IPPROTO_TCP : 0),
                  accepted.number());
    accepted.release();  // the socket closes it
    connections_.push_back(std::make_shared<Connection>(std::move(socket), listener.is_local(),
                                                        state_, std::move(*held)));
    connections_.back()->start();
  }

  void turn_away(int descriptor) {
    ++state_.counts.refused;
    const Response answer =
        state_.handler.refuse(ApiError(503, "too many connections", "overloaded", 1));
    const std::string text = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nRetry-After: 1\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        answer.status, reason_phrase(answer.status), answer.type, answer.body.size(), answer.body);
    static_cast<void>(::send(descriptor, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }

  void wait_for_tick() {
    timer_.expires_after(state_.limits.tick);
    timer_.async_wait([this](const error_code& problem) {
      if (problem) return;
      wait_for_tick();
      tick();
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

  // The one that has been idle for longest, if there is one: its client can connect again.
  void close_idle() {
    const auto oldest = std::ranges::min_element(connections_, {}, [](const auto& connection) {
      return connection->idle_since().value_or(Clock::time_point::max());
    });
    if (oldest == connections_.end() || !(*oldest)->idle_since()) return;
    (*oldest)->close();
    forget_closed();
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
  bool is_polled_ = false;
  Worker texts_, files_;  // destroyed first: their jobs use the others
};

Server::Server(std::vector<Listener> listeners, const ServerLimits& limits, Handler& handler,
               Allowance& allowance)
    : impl_(std::make_unique<Impl>(std::move(listeners), limits, handler, allowance)) {}
Server::~Server() = default;

void Server::run() {
  impl_->run();
}

void Server::poll() {
  impl_->poll();
}

void Server::post(std::function<void()> work) {
  impl_->post(std::move(work));
}

void Server::aside(Lane lane, std::function<Then()> work) {
  impl_->aside(lane, std::move(work));
}

std::size_t Server::waiting(Lane lane) {
  return impl_->waiting(lane);
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
