// HTTP requests as bytes: BYTES, CHOICES. However they are cut, the same requests are read.
#include <string>
#include <vector>

#include "core/http/transport/request_reader.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

constexpr std::size_t head_bytes_max = 2048;
constexpr std::uint64_t body_bytes_max = 4096;

std::string text_of(const http::RequestHead& head) {
  require(!head.path.empty() && (head.path[0] == '/' || head.path == "*"), "a path has its form");
  require(!head.is_chunked || head.field("Content-Length").empty(),
          "a body has one length: two readers would differ on where the next request begins");
  std::string text = head.method + " " + head.path + "?" + head.query;
  std::size_t bytes = 0;
  for (const http::Field& field : head.fields) {
    text += "\n" + field.name + ": " + field.value;
    bytes += field.name.size() + field.value.size();
    require(field.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
            "fields are single lines");
  }
  require(bytes <= head_bytes_max, "a head is bounded");
  return text + (head.is_chunked ? "\nchunked" : "") + (head.keeps_alive ? "\nkeeps" : "") +
         (head.expects_continue ? "\nexpects" : "") + "\n" + std::to_string(head.body_bytes);
}

// What came of a connection.
struct Read {
  std::vector<std::string> requests;
  unsigned status = 0;  // of the refusal that ended it; 0: more may come
};

// `waiting` grows as the buffer of a connection does.
Read read(std::string_view bytes, Choices choices) {
  Read result;
  std::string head, waiting;
  http::RequestReader reader(head_bytes_max);
  bool has_head = false;
  try {
    while (!bytes.empty()) {
      waiting += choices.piece_of(bytes);
      for (std::size_t taken = 1; taken != 0;) {
        taken = reader.take(waiting);
        require(taken <= waiting.size(), "no more is taken than there is");
        waiting.erase(0, taken);
        if (!has_head && reader.state() != http::RequestReader::State::head) {
          has_head = true;
          reader.take_body(body_bytes_max);
          head = text_of(reader.head());
          if (taken == 0 && !waiting.empty()) taken = 1;
        }
        require(reader.body().size() <= body_bytes_max, "a body is bounded");
        if (reader.state() != http::RequestReader::State::complete) continue;
        result.requests.push_back(head + "\n\n" + reader.body());
        reader = http::RequestReader(head_bytes_max);
        has_head = false;
        taken = waiting.empty() ? 0 : 1;
      }
    }
  } catch (const http::ApiError& error) {
    require(error.status >= 400 && error.status < 600, "a refusal has a status");
    result.status = error.status;
  }
  return result;
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 2);
  const Read whole = read(parts[0], Choices("")), pieces = read(parts[0], Choices(parts[1]));
  require(whole.requests == pieces.requests, "pieces give the requests of the whole");
  // The parser looks at a head only when it is whole, or when it has grown; so one of them may
  // still wait for more where the other was refused, or see first that it is too long.
  const auto may_differ = [](unsigned status) { return status == 0 || status == 431; };
  require(whole.status == pieces.status || may_differ(whole.status) || may_differ(pieces.status),
          "pieces are refused as the whole is");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      "GET /v1/models?a=b HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: "
      "100-continue\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: "
      "a\r\n\r\n5;a=b\r\nhello\r\n0\r\na: b\r\n\r\n",
      "GET http://host/path?q HTTP/1.1\r\nHost:\r\nConnection: close\r\n folded\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: a\r\nhost: b\r\nContent-Length: 0\r\n\r\n"};
  for (std::string& seed : all) seed = joined({seed, "\x03\x10\x01\x05"});
  return all;
}

}  // namespace sluice::fuzz
