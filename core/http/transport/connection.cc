#include "core/http/transport/connection.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace sluice::http {
namespace {

using boost::system::error_code;

constexpr std::chrono::seconds linger_time{2};
constexpr std::string_view comment = ": still here\n\n";
constexpr std::uint64_t framing_per_byte_max = 8;  // of a body in chunks of a byte
constexpr const char* long_framing = "what stands between the chunks of the body is too long";
constexpr std::size_t small_body_bytes = 1024;  // in what a connection has taken already
// Of a body that goes to a sink: a piece on its way, and what the sink keeps of it and of the head.
constexpr std::uint64_t sink_bytes = std::uint64_t{64} << 10;

}  // namespace

class Connection::LiveExchange final : public Exchange {
 public:
  LiveExchange(Connection& connection, Request request)
      : connection_(&connection), request_(std::move(request)) {}

  Request& request() override { return request_; }
  void respond(Response response) override {
    if (connection_ != nullptr) connection_->respond(std::move(response));
  }
  void begin_stream(std::vector<Field> fields, std::string_view type) override {
    if (connection_ != nullptr) connection_->begin_stream(std::move(fields), type);
  }
  void send(std::string_view bytes) override {
    if (connection_ != nullptr) connection_->send(bytes);
  }
  void end_stream() override {
    if (connection_ != nullptr) connection_->end_stream();
  }
  void give_up() override {
    if (connection_ != nullptr) connection_->close();
  }
  std::size_t waiting_bytes() const override {
    return connection_ == nullptr ? 0 : connection_->outbox_.waiting_bytes();
  }
  void on_sent(std::function<void()> sent) override { sent_ = std::move(sent); }
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }
  bool is_gone() const override { return is_gone_; }

  void tell_sent() const {
    if (const auto sent = sent_) sent();
  }

  // The answer has ended, or the connection.
  void detach(bool is_gone) {
    connection_ = nullptr;
    is_gone_ = is_gone;
    if (!is_gone) request_.drop_body();  // else somebody may still be reading it
    sent_ = nullptr;
    const std::function<void()> gone = std::exchange(gone_, nullptr);
    if (is_gone && gone) gone();
  }

 private:
  Connection* connection_;
  Request request_;
  std::function<void()> sent_, gone_;
  std::atomic<bool> is_gone_{false};
};

std::uint64_t connection_bytes(const ServerLimits& limits) {
  constexpr std::uint64_t parser_and_fields = std::uint64_t{16} << 10;
  // A piece of what was received, behind what the reader waits to be completed; and the head.
  return 3 * limits.head_bytes_max + Outbox::free_bytes + parser_and_fields;
}

Connection::Connection(Socket socket, bool is_from_here, ServerState& server, Allowance::Held held)
    : socket_(std::move(socket)),
      server_(server),
      is_from_here_(is_from_here),
      held_(std::move(held)),
      reader_(server.limits.head_bytes_max),
      pace_(server.limits.pace_time, server.limits.pace_bytes_min),
      outbox_(socket_, server) {
  ++server_.counts.connections;
}

Connection::~Connection() {
  close();
  --server_.counts.connections;
}

void Connection::enter(Phase phase) {
  phase_ = phase;
  phase_began_ = Clock::now();
}

void Connection::start() {
  outbox_.open(
      weak_from_this(), [this] { look_after_sending(); }, [this] { close(); });
  read();
}

// A read is always under way, because it also tells when the client goes. While a request is being
// answered, no more than a piece is taken of what the client sends ahead; and nothing while a sink
// has all that came before.
void Connection::read() {
  const bool is_full = phase_ == Phase::answer && in_.size() >= server_.received_piece.size();
  if (is_reading_ || is_sinking_ || is_closed() || is_full) return;
  is_reading_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& problem) {
    self->is_reading_ = false;
    if (self->is_closed()) return;
    if (problem) return self->close();
    self->take_in();
  });
}

void Connection::take_in() {
  std::vector<char>& piece = server_.received_piece;
  const ssize_t n = ::recv(socket_.native_handle(), piece.data(), piece.size(), MSG_DONTWAIT);
  const bool is_too_early = n < 0 && (errno == EAGAIN || errno == EINTR);
  if (n == 0 && has_whole_answer()) return;  // the client sends no more; end_answer() reads again
  if (n <= 0 && !is_too_early) return close();
  if (n > 0 && phase_ != Phase::lingering) {
    in_.append(piece.data(), static_cast<std::size_t>(n));
    consume();
  }
  read();
}

// A client that ends its side is gone, unless all that is left to do is to send: it may have said
// all that it had to say, and wait for that. Writing tells when it does not.
bool Connection::has_whole_answer() const {
  return phase_ == Phase::answer && has_ended_;
}

// Gives the reader what has come, as far as it belongs to the present request; unless there is a
// problem already.
void Connection::consume(const std::exception_ptr& problem) {
  try {
    if (problem) std::rethrow_exception(problem);
    consume_all();
  } catch (const ApiError& error) {
    refuse(error);
  } catch (const std::exception& error) {  // of the handler, or a sink
    refuse(server_.handler.failure(request_id_, error.what()));
  }
}

bool Connection::is_consuming() const {
  const bool is_request = phase_ == Phase::idle || phase_ == Phase::head || phase_ == Phase::body;
  return is_request && !is_sinking_ && !is_closed();
}

void Connection::consume_all() {
  using State = RequestReader::State;
  while (is_consuming()) {
    if (phase_ == Phase::idle) {
      // Older clients end a body with an empty line that is no part of it (RFC 9112, 2.2).
      while (in_.starts_with("\r\n")) in_.erase(0, 2);
      if (in_ == "\r") return;
    }
    if (phase_ == Phase::idle && !in_.empty()) {
      request_id_ = fmt::format("req_{}{:08x}", server_.id_prefix, ++server_.requests);
      enter(Phase::head);
    }
    const std::size_t taken = reader_.take(in_);
    in_.erase(0, taken);
    if (phase_ == Phase::head && reader_.state() != State::head) {
      receive_body();
      continue;
    }
    if (phase_ == Phase::body) {
      hold_body(taken);
      if (sink_ && !reader_.body().empty()) return pass_body_on();
      if (reader_.state() == State::complete) return begin_answer();
    }
    if (taken != 0) continue;
    // It waits for the end of something that is no body.
    if (in_.size() > server_.limits.head_bytes_max) {
      throw phase_ == Phase::body ? ApiError(400, long_framing)
                                  : ApiError(431, "the header of the request is too long");
    }
    return;
  }
}

// The head is complete.
void Connection::receive_body() {
  RequestHead& head = reader_.head();
  head.is_from_here = is_from_here_;
  closes_after_ = !head.keeps_alive || server_.is_stopping;
  enter(Phase::body);
  pace_.begin(phase_began_);
  body_bytes_ = framing_bytes_ = 0;
  Reception reception = server_.handler.receive(head);
  fields_ = std::move(reception.fields);
  if (reception.refusal) return refuse(std::move(*reception.refusal));
  if (head.has_body && reception.body_bytes_max == 0) {
    throw ApiError(413, "the request has a body, and none belongs here");
  }
  if (head.body_bytes > reception.body_bytes_max) {
    throw ApiError(413, fmt::format("the body has {} bytes, the most is {}", head.body_bytes,
                                    reception.body_bytes_max));
  }
  sink_ = std::move(reception.sink);
  auto held = server_.allowance.take(sink_ ? sink_bytes : head.body_bytes);
  if (!held) throw no_memory();
  body_held_ = std::move(*held);
  reader_.take_body(reception.body_bytes_max);
  if (!sink_) reader_.body().reserve(head.body_bytes);
  if (head.has_body && head.expects_continue && in_.empty()) {
    static_cast<void>(outbox_.add("HTTP/1.1 100 Continue\r\n\r\n"));
  }
}

// Some of the body may have come: how long it is going to be is not known of one in chunks.
void Connection::hold_body(std::size_t taken) {
  const std::string& body = reader_.body();
  const std::uint64_t added = body.size() - (sink_ ? 0 : body_bytes_);
  pace_.add(added);
  body_bytes_ += added;
  framing_bytes_ += taken - added;
  if (framing_bytes_ > server_.limits.head_bytes_max + framing_per_byte_max * body_bytes_) {
    throw ApiError(400, long_framing);
  }
  if (!sink_ && body.capacity() > std::max<std::uint64_t>(body_held_.bytes(), small_body_bytes) &&
      !body_held_.resize_as_new(body.capacity())) {
    throw no_memory();
  }
}

// Nothing more is read until the sink has taken what there is. That time is not the client's.
void Connection::pass_body_on() {
  is_sinking_ = true;
  const auto began = Clock::now();
  server_.aside(Lane::files,
                [self = shared_from_this(), sink = sink_, began,
                 piece = std::exchange(reader_.body(), {})]() mutable -> Then {
                  std::exception_ptr problem;
                  try {
                    sink->take(piece);
                  } catch (...) {
                    problem = std::current_exception();
                  }
                  sink = nullptr;
                  return [self = std::move(self), began, problem] {
                    self->go_on_after_sink(began, problem);
                  };
                });
}

void Connection::go_on_after_sink(Clock::time_point began, const std::exception_ptr& problem) {
  is_sinking_ = false;
  if (is_closed()) return drop_sink();
  pace_.forgive(Clock::now() - began);
  consume(problem);
  read();
}

// The last one to let go of a sink removes what it has written.
void Connection::drop_sink() {
  if (!sink_ || is_sinking_) return;
  server_.aside(Lane::files, [sink = std::exchange(sink_, nullptr)] { return Then(); });
}

void Connection::begin_answer() {
  begin_exchange({.head = std::move(reader_.head()),
                  .body = std::move(reader_.body()),
                  .body_held = std::move(body_held_),
                  .sink = std::move(sink_),
                  .id = request_id_});
  const auto exchange = exchange_;
  try {
    server_.handler.handle(exchange);
  } catch (const ApiError& error) {
    exchange->respond(server_.handler.refuse(error));
  } catch (const std::exception& error) {
    exchange->respond(server_.handler.refuse(server_.handler.failure(request_id_, error.what())));
  }
}

void Connection::begin_exchange(Request request) {
  enter(Phase::answer);
  has_answered_ = has_ended_ = is_stream_ = false;
  status_ = 0;
  longest_ = 0;
  exchange_ = std::make_shared<LiveExchange>(*this, std::move(request));
}

void Connection::refuse(const ApiError& error) {
  if (phase_ == Phase::answer) return;
  closes_after_ = true;
  // There is nothing else to log of what is no request.
  refuse(server_.handler.refuse(error),
         phase_ == Phase::head ? fmt::format(", {}", error.what()) : std::string());
}

// Nothing can follow a request that was not read to its end.
void Connection::refuse(Response response, const std::string& note) {
  closes_after_ = closes_after_ || reader_.state() != RequestReader::State::complete;
  body_held_ = {};
  drop_sink();
  begin_exchange({.head = reader_.head(), .body = {}, .id = request_id_, .note = note});
  respond(std::move(response));
}

std::string Connection::head_of(const Response& response, bool is_stream) {
  const RequestHead& head = exchange_->request().head;
  status_ = response.status;
  is_chunked_ = is_stream && head.is_http11;
  if (is_stream && !is_chunked_) closes_after_ = true;
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (response.status != 204) text += fmt::format("Content-Type: {}\r\n", response.type);
  if (is_chunked_) {
    text += "Transfer-Encoding: chunked\r\n";
  } else if (!is_stream && response.status != 204) {
    const std::uint64_t bytes = response.file.file ? response.file.bytes : response.body.size();
    text += fmt::format("Content-Length: {}\r\n", bytes);
  }
  text += fmt::format("X-Request-Id: {}\r\nX-Content-Type-Options: nosniff\r\n",
                      exchange_->request().id);
  for (const Field& field : fields_) text += fmt::format("{}: {}\r\n", field.name, field.value);
  for (const Field& field : response.fields) {
    text += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  return text + (closes_after_ ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
}

void Connection::respond(Response response) {
  if (std::exchange(has_answered_, true)) return;
  closes_after_ = closes_after_ || server_.is_stopping;
  // Memory is counted by what a text may grow to.
  if (!outbox_.has_room(response.body.capacity())) response = server_.handler.refuse(no_memory());
  const bool has_body = exchange_->request().head.method != "HEAD";
  has_ended_ = true;
  std::string head = head_of(response, false);
  if (has_body && response.body.size() <= Outbox::free_bytes / 2) {
    head += std::exchange(response.body, {});  // in one packet
  }
  bool is_whole = outbox_.add(std::move(head));
  if (has_body && !response.body.empty()) is_whole = outbox_.add(std::move(response.body));
  if (has_body && response.file.file) outbox_.add_file(std::move(response.file));
  if (!is_whole) cut_off();
}

void Connection::begin_stream(std::vector<Field> fields, std::string_view type) {
  if (std::exchange(has_answered_, true)) return;
  is_stream_ = true;
  has_comments_ = type == Exchange::event_stream;
  fields.push_back({"Cache-Control", "no-store"});
  fields.push_back({"X-Accel-Buffering", "no"});
  const Response response = {.type = std::string(type), .body = {}, .fields = std::move(fields)};
  if (!outbox_.add(head_of(response, true))) cut_off();
}

void Connection::send(std::string_view bytes) {
  if (!is_stream_ || has_ended_ || bytes.empty()) return;
  // What waits is what the client has not read; how long one event is, is not its fault.
  if (outbox_.waiting_bytes() > server_.limits.output_bytes_max + longest_) return cut_off();
  longest_ = std::max(longest_, bytes.size());
  std::string text = is_chunked_ ? fmt::format("{:x}\r\n", bytes.size()) : std::string();
  text += bytes;
  if (is_chunked_) text += "\r\n";
  if (!outbox_.add(std::move(text))) cut_off();
}

void Connection::end_stream() {
  if (!is_stream_ || std::exchange(has_ended_, true)) return;
  if (is_chunked_) return static_cast<void>(outbox_.add("0\r\n\r\n"));
  if (outbox_.is_idle()) end_answer();
}

void Connection::cut_off() {
  ++server_.counts.cut_off;
  close();
}

// All was sent that there was.
void Connection::look_after_sending() {
  if (phase_ != Phase::answer) return;
  if (has_ended_) return end_answer();
  exchange_->tell_sent();
}

// The whole answer was sent.
void Connection::end_answer() {
  const auto exchange = std::exchange(exchange_, nullptr);
  server_.handler.log(
      exchange->request(), status_,
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - phase_began_));
  exchange->detach(false);
  if (closes_after_ || server_.is_stopping) {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    enter(Phase::lingering);
    in_ = {};
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
      if (in_phase > limits.head_time) {
        refuse(ApiError(408, "the header of the request took too long"));
      }
      break;
    case Phase::body:
      if (!is_sinking_ && pace_.is_too_slow(now)) {
        refuse(ApiError(408, "the body of the request took too long"));
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
  if (!has_whole_answer() && ::poll(&look, 1, 0) > 0 &&
      (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    return close();
  }
  if (outbox_.is_too_slow(now)) return cut_off();
  if (is_stream_ && has_comments_ && !has_ended_ && outbox_.is_idle() &&
      now - outbox_.last_progress() > server_.limits.comment_period) {
    send(comment);
  }
}

std::optional<Connection::Clock::time_point> Connection::idle_since() const {
  if (phase_ != Phase::idle || is_closed()) return std::nullopt;
  return phase_began_;
}

void Connection::wind_down() {
  if (phase_ == Phase::idle) return close();
  closes_after_ = true;
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
  in_ = {};
  body_held_ = {};
  drop_sink();
  outbox_.clear();
  const auto exchange = std::exchange(exchange_, nullptr);
  if (!exchange) return;
  exchange->detach(true);  // whoever answers notes how far it has come
  server_.handler.log(
      exchange->request(), 0,
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - phase_began_));
}

}  // namespace sluice::http
