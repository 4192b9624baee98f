// One connection of the server: reads requests one after the other, and writes their answers.
//
// Threads: the server's alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/transport/outbox.h"
#include "core/http/transport/pace.h"
#include "core/http/transport/request_reader.h"
#include "core/http/transport/server_state.h"

namespace sluice::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = Pace::Clock;

  // `held` is connection_bytes() of the allowance.
  Connection(Socket socket, bool is_from_here, ServerState& server, Allowance::Held held);
  ~Connection();

  void start();
  void tick(Clock::time_point now);
  void wind_down();  // no further request
  void close();      // at once; the present request is given up
  bool is_closed() const { return !socket_.is_open(); }
  // Since when nothing has come of a request; nothing: it has one, or answers one.
  std::optional<Clock::time_point> idle_since() const;

 private:
  class LiveExchange;

  // idle: nothing of a request has come. answer: the handler has the request, or its answer is
  // being sent. lingering: the last answer was sent, and what still comes is thrown away: closing a
  // socket with unread bytes would lose the answer on its way.
  enum class Phase { idle, head, body, answer, lingering };

  void enter(Phase phase);
  void read();
  void take_in();
  bool has_whole_answer() const;
  void consume(const std::exception_ptr& problem = nullptr);
  void consume_all();
  bool is_consuming() const;
  void receive_body();
  void hold_body(std::size_t taken);
  void pass_body_on();
  void go_on_after_sink(Clock::time_point began, const std::exception_ptr& problem);
  void drop_sink();
  void begin_answer();
  void begin_exchange(Request request);
  void refuse(const ApiError& error);
  void refuse(Response response, const std::string& note = {});
  std::string head_of(const Response& response, bool is_stream);
  void respond(Response response);
  void begin_stream(std::vector<Field> fields, std::string_view type);
  void send(std::string_view bytes);
  void end_stream();
  void cut_off();
  void look_after_sending();
  void end_answer();
  void look_at_answer(Clock::time_point now);

  Socket socket_;
  ServerState& server_;
  bool is_from_here_;
  Allowance::Held held_;
  Phase phase_ = Phase::idle;
  Clock::time_point phase_began_ = Clock::now();
  RequestReader reader_;
  std::string in_;  // received, not yet taken by the reader
  bool is_reading_ = false;
  std::string request_id_;
  Allowance::Held body_held_;
  std::uint64_t body_bytes_ = 0;     // so far
  std::uint64_t framing_bytes_ = 0;  // around them
  std::shared_ptr<BodySink> sink_;
  bool is_sinking_ = false;                 // the sink has a piece
  Pace pace_;                               // of the body
  std::shared_ptr<LiveExchange> exchange_;  // of the present request
  std::vector<Field> fields_;               // of its answer

  Outbox outbox_;
  unsigned status_ = 0;
  bool is_stream_ = false;
  std::size_t longest_ = 0;    // piece of a stream so far
  bool has_comments_ = false;  // of a stream
  bool is_chunked_ = false;
  bool has_answered_ = false;  // respond() or begin_stream() was called
  bool has_ended_ = false;     // all of the answer is in the outbox
  bool closes_after_ = false;
};

}  // namespace sluice::http
