// One connection of the server: reads requests one after the other, and writes their answers.
//
// Threads: the server's alone.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/request_reader.h"
#include "core/http/server.h"

namespace sluice::http {

// What all connections of a server share. Outlives them.
struct ServerState {
  ServerLimits limits;
  Handler& handler;
  ServerCounts counts = {};
  std::uint64_t bodies_bytes = 0;  // promised to requests that have not ended
  bool is_stopping = false;
  std::uint64_t requests = 0;
  std::string id_prefix = {};  // of request ids, another for each start of the server
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  Connection(Socket socket, ServerState& server);
  ~Connection();

  void start();
  void tick(Clock::time_point now);
  void wind_down();  // no further request
  void close();      // at once; the present request is given up
  bool is_closed() const { return !socket_.is_open(); }

 private:
  class LiveExchange;

  // idle: nothing of a request has come. answer: the handler has the request, or its answer is
  // being sent. lingering: the last answer was sent, and what still comes is thrown away: closing a
  // socket with unread bytes would lose the answer on its way.
  enum class Phase { idle, head, body, answer, lingering };

  void enter(Phase phase);
  void read();
  void take_in(std::size_t bytes);
  void consume();
  void receive_body();
  void begin_answer();
  void refuse(unsigned status, const std::string& reason);
  void refuse(Response response);
  void write_head(const Response& response, bool is_stream);
  void respond(Response response);
  void begin_stream(std::vector<Field> fields);
  void send(std::string_view events);
  void end_stream();
  void append_chunk(std::string_view bytes);
  void flush();
  void write_some();
  bool refill();
  void end_answer();
  void look_at_answer(Clock::time_point now);
  void release_body();

  Socket socket_;
  ServerState& server_;
  Phase phase_ = Phase::idle;
  Clock::time_point phase_began_ = Clock::now();
  Clock::time_point last_progress_ = Clock::now();
  RequestReader reader_;
  std::string in_;     // received, not yet taken by the reader
  std::string piece_;  // where the next bytes are received
  bool is_reading_ = false;
  std::shared_ptr<LiveExchange> exchange_;  // of the present request
  std::vector<Field> fields_;               // of its answer
  std::uint64_t reserved_bytes_ = 0;        // for its body

  std::string out_;      // to be sent
  std::string sending_;  // being sent, from sent_ on
  std::size_t sent_ = 0;
  FileBody file_;
  std::uint64_t file_sent_ = 0;
  unsigned status_ = 0;
  bool is_writing_ = false;
  bool is_stream_ = false;
  bool is_chunked_ = false;
  bool has_answered_ = false;  // respond() or begin_stream() was called
  bool has_ended_ = false;     // all of the answer is in out_ and file_
  bool closes_after_ = false;
};

}  // namespace sluice::http
