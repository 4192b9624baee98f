// The HTTP server: listeners, connections and their limits. It knows nothing of the API; a Handler
// answers the requests.
//
// Everything that a client sends is bounded, and so is everything that is kept for it: a client
// that reads too slowly is cut off once `output_bytes_max` bytes wait for it, or nothing could be
// sent for `stall`. A body is held only while all bodies together take `bodies_bytes_max` bytes at
// most. A connection has one request at a time; what a client sends ahead waits in its socket.
//
// Threads: run() is the server's thread, on which the handler is called and every Exchange is used.
// post() and stop() may be called from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/listener.h"
#include "core/http/message.h"

namespace sluice::http {

struct ServerLimits {
  std::size_t head_bytes_max = std::size_t{16} << 10;
  std::size_t connections_max = 128;
  std::size_t bodies_bytes_max = std::size_t{8} << 20;    // of all requests together
  std::size_t output_bytes_max = std::size_t{256} << 10;  // that wait for a client, of a stream
  std::chrono::milliseconds head_time{
      15'000};  // from the first byte of a request to its last field
  std::chrono::milliseconds idle_time{75'000};       // between requests
  std::chrono::milliseconds body_time{300'000};      // for a body that is held
  std::chrono::milliseconds stall{30'000};           // without a byte of a body, or of an answer
  std::chrono::milliseconds comment_period{15'000};  // of comments that keep a stream open
  std::chrono::milliseconds tick{250};               // how often all of this is looked at
};

// The most memory that the connections hold, for the plan.
std::uint64_t connections_bytes(const ServerLimits& limits);

// A request and the way to answer it: with respond(), or with begin_stream(), any number of send()
// and end_stream(). Calls have no effect once the answer has ended or the client has gone, so it
// may be kept for as long as one likes.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Request& request() = 0;
  virtual void respond(Response response) = 0;
  virtual void begin_stream(std::vector<Field> fields = {}) = 0;  // of server-sent events
  virtual void send(std::string_view events) = 0;
  virtual void end_stream() = 0;
  // `gone` is called once if the client goes, or is cut off, before the answer has ended.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// How a request is received.
struct Reception {
  // Fields of the answer, whatever it is going to be.
  std::vector<Field> fields = {};
  // Answers without reading the body; the connection ends then.
  std::unique_ptr<Response> refusal = nullptr;
  std::uint64_t body_bytes_max = 0;
  std::shared_ptr<BodySink> sink = nullptr;  // takes the body, which is not held then
};

class Handler {
 public:
  virtual ~Handler() = default;
  // The head has come. What it throws is answered with status 500.
  virtual Reception receive(const RequestHead& head) = 0;
  // The request is complete.
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The answer to a request that cannot be taken, in the form of the API.
  virtual Response refuse(unsigned status, const std::string& reason) = 0;
  // An answer has ended with this status, or was given up (0).
  virtual void log(const Request& request, unsigned status, std::chrono::milliseconds took) = 0;
};

struct ServerCounts {
  std::uint64_t connections = 0;  // now
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;  // because there were too many
  std::uint64_t cut_off = 0;  // slow clients
};

class Server {
 public:
  // Takes the listeners over. `handler` must outlive the server.
  Server(std::vector<Listener> listeners, const ServerLimits& limits, Handler& handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop() was called and all answers have ended, or the grace is over.
  void run();

  // Calls `work` on the server's thread; not any more once run() has returned.
  void post(std::function<void()> work);

  // Takes no more connections and no more requests. Answers that have begun may go on for `grace`.
  void stop(std::chrono::milliseconds grace);

  // Calls `look` every tick, on the server's thread. Before run().
  void on_tick(std::function<void()> look);

  // Of the server's thread.
  bool is_stopping() const;
  const ServerCounts& counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::http
