// The HTTP server: listeners, connections and their limits. It knows nothing of the API and of
// JSON; a Handler answers the requests.
//
// Whatever a client does is bounded in bytes and in time. What is held for it comes out of an
// Allowance, and a client for which nothing is left is refused (503) or, in the middle of an
// answer, cut off. While a body comes, or an answer waits to be sent, bytes have to keep to a least
// rate; a stream that is read too slowly is cut off once `output_bytes_max` bytes wait. Of as many
// connections as there may be, the one that has been idle for longest gives way to a new one. A
// connection has one request at a time; what a client sends ahead waits in its socket.
//
// Threads: run() is the server's thread, on which the handler is called and every Exchange is used.
// post(), aside() and stop() may be called from any thread. Nothing that takes long runs on the
// server's thread: bodies that go to files and files that are sent have a thread of their own. What
// is thrown on the server's thread and caught by nobody is reported, and ends nothing but the call
// that has thrown it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/allowance.h"
#include "core/http/transport/error.h"
#include "core/http/transport/listener.h"
#include "core/http/transport/message.h"

namespace sluice::http {

struct ServerLimits {
  // Of the head of a request, and of all that is not its body: the head of a chunk, the trailers.
  std::size_t head_bytes_max = std::size_t{16} << 10;
  std::size_t connections_max = 128;
  // That wait for a client, of a stream, besides the longest piece of it.
  std::size_t output_bytes_max = std::size_t{256} << 10;
  std::chrono::milliseconds head_time{
      15'000};  // from the first byte of a request to its last field
  std::chrono::milliseconds idle_time{75'000};  // between requests
  // In each such period a body has to come to its end, or by so many bytes. So has what waits to be
  // sent.
  std::chrono::milliseconds pace_time{30'000};
  std::size_t pace_bytes_min = std::size_t{64} << 10;
  std::chrono::milliseconds comment_period{15'000};  // of comments that keep a stream open
  std::chrono::milliseconds tick{250};               // how often all of this is looked at
};

// What the allowance of a server gives for each connection, besides bodies and what waits to be
// sent.
std::uint64_t connection_bytes(const ServerLimits& limits);

// A request and the way to answer it: with respond(), or with begin_stream(), any number of send()
// and end_stream(). Calls have no effect once the answer has ended or the client has gone, so it
// may be kept for as long as one likes.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Request& request() = 0;
  virtual void respond(Response response) = 0;
  // An answer of unknown length. One of server-sent events gets comments while nothing is sent.
  virtual void begin_stream(std::vector<Field> fields = {},
                            std::string_view type = event_stream) = 0;
  virtual void send(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  // Ends the connection, so that the client sees that an answer that has begun is not whole.
  virtual void give_up() = 0;
  virtual std::size_t waiting_bytes() const = 0;  // that were not sent yet
  // `sent` is called whenever all has been sent that there was, before the end of the answer.
  virtual void on_sent(std::function<void()> sent) = 0;
  // `gone` is called once if the client goes, or is cut off, before the answer has ended.
  virtual void on_gone(std::function<void()> gone) = 0;
  virtual bool is_gone() const = 0;  // may be called by any thread

  static constexpr std::string_view event_stream = "text/event-stream";
};

// How a request is received.
struct Reception {
  // Fields of the answer, whatever it is going to be.
  std::vector<Field> fields = {};
  // Answers without reading the body; the connection ends then.
  std::unique_ptr<Response> refusal = nullptr;
  std::uint64_t body_bytes_max = 0;          // 0: a body is refused
  std::shared_ptr<BodySink> sink = nullptr;  // takes the body, which is not held then
};

class Handler {
 public:
  virtual ~Handler() = default;
  // The head has come. What it throws, if it is no ApiError, is answered with status 500, as with
  // handle().
  virtual Reception receive(const RequestHead& head) = 0;
  // The request is complete.
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The answer to a request that cannot be taken, in the form of the API. May be called before the
  // server runs.
  virtual Response refuse(const ApiError& error) = 0;
  // Something has failed that is none of the client's business. May be called by any thread.
  virtual void report(const std::string& problem) = 0;
  // An answer has ended with this status, or was given up (0).
  virtual void log(const Request& request, unsigned status, std::chrono::milliseconds took) = 0;

  // What the client hears of such a failure: where to find more, and none of it.
  ApiError failure(const std::string& request_id, const std::string& problem);
};

struct ServerCounts {
  std::uint64_t connections = 0;  // now
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;  // because there were too many
  std::uint64_t cut_off = 0;  // slow clients
  std::uint64_t defects = 0;  // exceptions that nobody expected
};

// Threads for what takes too long between two events of the network.
enum class Lane {
  texts,  // parsing, rendering and tokenising of prompts
  files,  // whatever may wait for a disk
};
// Done on the server's thread afterwards; may be empty.
using Then = std::function<void()>;

class Server {
 public:
  // Takes the listeners over. `handler` and `allowance` must outlive the server.
  Server(std::vector<Listener> listeners, const ServerLimits& limits, Handler& handler,
         Allowance& allowance);
  // Waits for what runs aside.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop() was called and all answers have ended, or the grace is over. Then nothing
  // runs aside any more.
  void run();

  // In place of run(), for a caller that lends its thread now and then: does what there is to do,
  // and what is done every tick. What goes aside is done at once, on this thread.
  void poll();

  // Calls `work` on the server's thread; not any more once run() has returned.
  void post(std::function<void()> work);

  // Calls `work`, which must not throw, on the thread of `lane`, and what it returns on the
  // server's.
  void aside(Lane lane, std::function<Then()> work);
  std::size_t waiting(Lane lane);  // calls of aside() that have not begun

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
