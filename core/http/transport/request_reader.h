// Reads one HTTP/1.1 request from bytes that arrive in pieces (RFC 9110 and 9112), on the parser of
// Boost.Beast. Trusts nothing: everything is bounded, and whatever is not a request is refused with
// the status that says why.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/http/transport/error.h"
#include "core/http/transport/message.h"

namespace sluice::http {

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
  // nothing once the request is complete. Throws ApiError for what is no request; the connection
  // cannot be used afterwards.
  //
  // It keeps the head, in at most twice its bytes, and what of the body was not taken out of
  // body(). How many bytes it does not take yet is for the caller to limit.
  std::size_t take(std::string_view bytes);

  State state() const;
  RequestHead& head();  // complete unless the state is State::head

  // A body of more bytes is refused with status 413. Call it in State::body, before more bytes are
  // given.
  void take_body(std::uint64_t bytes_max);
  // What has come of the body, and was not taken out.
  std::string& body();

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace sluice::http
