#include "core/http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace sluice::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t piece_bytes = std::size_t{16} << 10;
constexpr std::size_t file_piece_bytes = std::size_t{64} << 10;
constexpr std::chrono::seconds linger_time{2};
constexpr std::string_view comment = ": still here\n\n";

}  // namespace

class Connection::LiveExchange final : public Exchange {
 public:
  LiveExchange(Connection& connection, Request request)
      : connection_(&connection), request_(std::move(request)) {}

  Request& request() override { return request_; }
  void respond(Response response) override {
    if (connection_ != nullptr) connection_->respond(std::move(response));
  }
  void begin_stream(std::vector<Field> fields) override {
    if (connection_ != nullptr) connection_->begin_stream(std::move(fields));
  }
  void send(std::string_view events) override {
    if (connection_ != nullptr) connection_->send(events);
  }
  void end_stream() override {
    if (connection_ != nullptr) connection_->end_stream();
  }
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }

  // The answer has ended, or the connection.
  void detach(bool is_gone) {
    connection_ = nullptr;
    const std::function<void()> gone = std::exchange(gone_, nullptr);
    if (is_gone && gone) gone();
  }

 private:
  Connection* connection_;
  Request request_;
  std::function<void()> gone_;
};

Connection::Connection(Socket socket, ServerState& server)
    : socket_(std::move(socket)), server_(server), reader_(server.limits.head_bytes_max) {
  ++server_.counts.connections;
}

Connection::~Connection() {
  close();
  --server_.counts.connections;
}

void Connection::enter(Phase phase) {
  phase_ = phase;
  phase_began_ = last_progress_ = Clock::now();
}

void Connection::start() {
  read();
}

// A read is always under way, because it also tells when the client goes. While a request is being
// answered, no more than a piece is taken of what the client sends ahead.
void Connection::read() {
  const bool is_full = phase_ == Phase::answer && in_.size() >= piece_bytes;
  if (is_reading_ || is_closed() || is_full) return;
  is_reading_ = true;
  piece_.resize(piece_bytes);
  socket_.async_read_some(asio::buffer(piece_),
                          [self = shared_from_this()](const error_code& problem, std::size_t n) {
                            self->is_reading_ = false;
                            if (self->is_closed()) return;
                            if (problem) return self->close();
                            self->take_in(n);
                          });
}

void Connection::take_in(std::size_t bytes) {
  last_progress_ = phase_ == Phase::answer ? last_progress_ : Clock::now();
  if (phase_ != Phase::lingering) {
    in_.append(piece_, 0, bytes);
    consume();
  }
  read();
}

// Gives the reader what has come, as far as it belongs to the present request.
void Connection::consume() {
  using State = RequestReader::State;
  try {
    while (phase_ != Phase::answer && phase_ != Phase::lingering && !is_closed()) {
      if (phase_ == Phase::idle && !in_.empty()) enter(Phase::head);
      const std::size_t taken = reader_.take(in_);
      in_.erase(0, taken);
      const State state = reader_.state();
      if (phase_ == Phase::head && state != State::head) {
        receive_body();
      } else if (phase_ == Phase::body && state == State::complete) {
        begin_answer();
      } else if (taken == 0) {
        return;
      }
    }
  } catch (const BadRequest& bad) {
    refuse(bad.status, bad.what());
  } catch (const std::exception& error) {  // of the handler, or of a sink
    refuse(500, error.what());
  }
}

// The head is complete.
void Connection::receive_body() {
  RequestHead& head = reader_.head();
  closes_after_ = !head.keeps_alive || server_.is_stopping;
  enter(Phase::body);
  Reception reception = server_.handler.receive(head);
  fields_ = std::move(reception.fields);
  if (reception.refusal) return refuse(std::move(*reception.refusal));
  if (head.body_bytes > reception.body_bytes_max) {
    return refuse(413, fmt::format("the body has {} bytes, the most is {}", head.body_bytes,
                                   reception.body_bytes_max));
  }
  if (head.has_body && !reception.sink) {
    const std::uint64_t bytes = head.is_chunked ? reception.body_bytes_max : head.body_bytes;
    if (server_.bodies_bytes + bytes > server_.limits.bodies_bytes_max) {
      return refuse(503, "the server holds as many requests as it may: try again later");
    }
    reserved_bytes_ = bytes;
    server_.bodies_bytes += bytes;
  }
  reader_.take_body(reception.body_bytes_max, std::move(reception.sink));
  if (head.has_body && head.expects_continue && in_.empty()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
}

void Connection::begin_answer() {
  Request request;
  request.head = std::move(reader_.head());
  request.body = std::move(reader_.body());
  request.sink = reader_.sink();
  request.id = fmt::format("req_{}{:08x}", server_.id_prefix, ++server_.requests);
  enter(Phase::answer);
  has_answered_ = has_ended_ = is_stream_ = false;
  status_ = 0;
  exchange_ = std::make_shared<LiveExchange>(*this, std::move(request));
  const auto exchange = exchange_;
  try {
    server_.handler.handle(exchange);
  } catch (const std::exception& error) {
    exchange->respond(server_.handler.refuse(500, error.what()));
  }
}

void Connection::refuse(unsigned status, const std::string& reason) {
  closes_after_ = true;
  refuse(server_.handler.refuse(status, reason));
}

// Nothing can follow a request that was not read to its end.
void Connection::refuse(Response response) {
  if (phase_ == Phase::answer) return;
  enter(Phase::answer);
  has_answered_ = has_ended_ = is_stream_ = false;
  closes_after_ = closes_after_ || reader_.state() != RequestReader::State::complete;
  Request request;
  request.head = reader_.head();
  request.id = fmt::format("req_{}{:08x}", server_.id_prefix, ++server_.requests);
  exchange_ = std::make_shared<LiveExchange>(*this, std::move(request));
  respond(std::move(response));
}

void Connection::write_head(const Response& response, bool is_stream) {
  const RequestHead& head = exchange_->request().head;
  status_ = response.status;
  is_chunked_ = is_stream && head.is_http11;
  if (is_stream && !is_chunked_) closes_after_ = true;
  out_ += fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (response.status != 204) out_ += fmt::format("Content-Type: {}\r\n", response.type);
  if (is_chunked_) {
    out_ += "Transfer-Encoding: chunked\r\n";
  } else if (!is_stream && response.status != 204) {
    const std::uint64_t bytes =
        response.file.descriptor ? response.file.bytes : response.body.size();
    out_ += fmt::format("Content-Length: {}\r\n", bytes);
  }
  out_ += fmt::format("X-Request-Id: {}\r\nX-Content-Type-Options: nosniff\r\n",
                      exchange_->request().id);
  for (const Field& field : fields_) out_ += fmt::format("{}: {}\r\n", field.name, field.value);
  for (const Field& field : response.fields) {
    out_ += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  out_ += closes_after_ ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n";
}

void Connection::respond(Response response) {
  if (std::exchange(has_answered_, true)) return;
  closes_after_ = closes_after_ || server_.is_stopping;
  write_head(response, false);
  if (exchange_->request().head.method != "HEAD") {
    out_ += response.body;
    file_ = std::move(response.file);
    file_sent_ = 0;
  }
  has_ended_ = true;
  last_progress_ = Clock::now();
  flush();
}

void Connection::begin_stream(std::vector<Field> fields) {
  if (std::exchange(has_answered_, true)) return;
  is_stream_ = true;
  fields.push_back({"Cache-Control", "no-store"});
  fields.push_back({"X-Accel-Buffering", "no"});
  write_head({.type = "text/event-stream", .body = {}, .fields = std::move(fields)}, true);
  last_progress_ = Clock::now();
  flush();
}

void Connection::append_chunk(std::string_view bytes) {
  if (is_chunked_) out_ += fmt::format("{:x}\r\n", bytes.size());
  out_ += bytes;
  if (is_chunked_) out_ += "\r\n";
}

void Connection::send(std::string_view events) {
  if (!is_stream_ || has_ended_ || events.empty()) return;
  // What waits already is what the client has not read; how long one event is, is not its fault.
  if (out_.size() > server_.limits.output_bytes_max) {
    ++server_.counts.cut_off;
    return close();
  }
  if (out_.empty() && sending_.empty()) last_progress_ = Clock::now();
  append_chunk(events);
  flush();
}

void Connection::end_stream() {
  if (!is_stream_ || std::exchange(has_ended_, true)) return;
  if (is_chunked_) out_ += "0\r\n\r\n";
  flush();
}

// Begins to send what is there, unless something is being sent already. Whatever ends an answer
// happens when sending has ended, never within the calls of a handler.
void Connection::flush() {
  if (is_writing_ || is_closed()) return;
  if (out_.empty() && !refill()) return;
  sending_.swap(out_);
  sent_ = 0;
  is_writing_ = true;
  write_some();
}

void Connection::write_some() {
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](const error_code& problem, std::size_t n) {
                             if (self->is_closed()) return;
                             if (problem) return self->close();
                             self->last_progress_ = Clock::now();
                             self->sent_ += n;
                             if (self->sent_ < self->sending_.size()) return self->write_some();
                             self->sending_.clear();
                             self->is_writing_ = false;
                             self->flush();
                             if (!self->is_writing_ && self->has_ended_ && !self->is_closed())
                               self->end_answer();
                           });
}

// Puts the next piece of the file into out_; false when nothing is left of it.
bool Connection::refill() {
  if (!file_.descriptor || file_sent_ == file_.bytes) return false;
  out_.resize(std::min<std::uint64_t>(file_piece_bytes, file_.bytes - file_sent_));
  const ssize_t n =
      ::pread(*file_.descriptor, out_.data(), out_.size(), static_cast<off_t>(file_sent_));
  if (n <= 0) {  // the length was promised, so the client must see that this is not all
    close();
    return false;
  }
  out_.resize(static_cast<std::size_t>(n));
  file_sent_ += static_cast<std::uint64_t>(n);
  return true;
}

void Connection::release_body() {
  server_.bodies_bytes -= std::exchange(reserved_bytes_, 0);
}

// The whole answer was sent.
void Connection::end_answer() {
  const auto exchange = std::exchange(exchange_, nullptr);
  server_.handler.log(
      exchange->request(), status_,
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - phase_began_));
  exchange->detach(false);
  release_body();
  file_ = {};
  has_ended_ = false;
  if (closes_after_ || server_.is_stopping) {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    enter(Phase::lingering);
    in_.clear();
    return read();
  }
  reader_ = RequestReader(server_.limits.head_bytes_max);
  enter(Phase::idle);
  consume();
  read();
}

void Connection::tick(Clock::time_point now) {
  if (is_closed()) return;
  const ServerLimits& limits = server_.limits;
  const auto in_phase = now - phase_began_;
  switch (phase_) {
    case Phase::idle:
      if (in_phase > limits.idle_time) close();
      break;
    case Phase::head:
      if (in_phase > limits.head_time) refuse(408, "the header of the request took too long");
      break;
    case Phase::body:
      if (now - last_progress_ > limits.stall || (reserved_bytes_ && in_phase > limits.body_time)) {
        refuse(408, "the body of the request took too long");
      }
      break;
    case Phase::answer:
      look_at_answer(now);
      break;
    case Phase::lingering:
      if (in_phase > linger_time) close();
      break;
  }
}

void Connection::look_at_answer(Clock::time_point now) {
  pollfd look{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    return close();
  }
  if (is_writing_ && now - last_progress_ > server_.limits.stall) {
    ++server_.counts.cut_off;
    return close();
  }
  if (is_stream_ && !has_ended_ && !is_writing_ &&
      now - last_progress_ > server_.limits.comment_period) {
    send(comment);
  }
}

void Connection::wind_down() {
  if (phase_ == Phase::idle) return close();
  closes_after_ = true;
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
  release_body();
  const auto exchange = std::exchange(exchange_, nullptr);
  if (!exchange) return;
  server_.handler.log(
      exchange->request(), 0,
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - phase_began_));
  exchange->detach(true);
}

}  // namespace sluice::http
