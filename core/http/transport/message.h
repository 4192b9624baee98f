// A request and its response, as the server hands them to the API: plain data, without sockets.
//
// Threads: values; each belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/allowance.h"

namespace sluice::http {

struct Field {
  std::string name;
  std::string value;
};

// Everything before the body.
struct RequestHead {
  std::string method;            // "POST"
  std::string path;              // "/v1/models"; begins with a slash (or is "*")
  std::string query;             // after the question mark, without it
  std::vector<Field> fields;     // in their order
  std::uint64_t body_bytes = 0;  // of Content-Length; 0 when chunked
  bool has_body = false;
  bool is_chunked = false;
  bool keeps_alive = false;       // the client will send further requests
  bool expects_continue = false;  // it waits for "100 Continue" before it sends the body
  bool is_http11 = false;
  bool is_from_here = false;  // only programs on this machine can reach where it came in

  // The value of the first field of this name (in any case), or nothing: an empty text.
  std::string_view field(std::string_view name) const;
};

// Takes the pieces of a body that is too large to be held, in order. The members and the destructor
// are called on the thread for files, one at a time.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // Throws to refuse the rest.
  virtual void take(std::string_view piece) = 0;
};

struct Request {
  RequestHead head;
  std::string body;  // empty where a sink took it
  Allowance::Held body_held = {};
  std::shared_ptr<BodySink> sink = nullptr;
  std::string id = {};    // sent back as X-Request-Id
  std::string note = {};  // for the log: what the answer has taken, or why there is none

  // Whoever has read the body lets go of it, and of its memory.
  void drop_body() {
    body = {};
    body_held = {};
  }
};

// A file to be sent as a body; it is closed when the last copy is gone.
struct FileBody {
  std::shared_ptr<const base::Descriptor> file;
  std::uint64_t bytes = 0;
};

struct Response {
  unsigned status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<Field> fields = {};
  FileBody file = {};  // sent in place of `body` when there is one
};

// The standard phrase of a status: "Not Found".
std::string_view reason_phrase(unsigned status);

// Whether two texts are equal apart from the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

// "a%20b" -> "a b". A percent sign that is followed by something else stays.
std::string percent_decoded(std::string_view part);

}  // namespace sluice::http
