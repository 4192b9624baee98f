// Reads one HTTP/1.1 request from bytes that arrive in pieces (RFC 9110 and 9112), on the parser of
// Boost.Beast. Trusts nothing: everything is bounded, and whatever is not a request is refused with
// the status that says why.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/http/message.h"

namespace sluice::http {

// Why the server does not accept the bytes as a request. The connection cannot be used afterwards.
struct BadRequest : std::runtime_error {
  BadRequest(unsigned status_, const std::string& reason)
      : std::runtime_error(reason), status(status_) {}
  unsigned status;
};

class RequestReader {
 public:
  enum class State { head, body, complete };

  // The head, from the method to the empty line, has at most `head_bytes_max` bytes.
  explicit RequestReader(std::size_t head_bytes_max);
  ~RequestReader();
  RequestReader(RequestReader&&) noexcept;
  RequestReader& operator=(RequestReader&&) noexcept;

  // Takes bytes from the front and returns how many; the caller gives the others again, with more
  // behind them. Stops when the head is complete, so that take_body() can be called, and takes
  // nothing once the request is complete. Throws BadRequest, and what a sink throws.
  std::size_t take(std::string_view bytes);

  State state() const;
  bool has_begun() const;  // some of the request has come
  RequestHead& head();     // complete unless the state is State::head

  // What to do with the body; call it in State::body before more bytes are given. A body of more
  // bytes is refused with status 413. Where there is a sink, body() stays empty.
  void take_body(std::uint64_t bytes_max, std::shared_ptr<BodySink> sink);
  std::string& body();
  std::shared_ptr<BodySink> sink() const;

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace sluice::http
