#include "core/http/transport/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>
#include <utility>

namespace sluice::http {
namespace {

namespace beast = boost::beast;
using beast::error_code;
using beast::http::error;

constexpr std::size_t fields_max = 128;

// The path and the query of a target: "/a?b", or "http://host/a?b" as proxies are sent it.
void split_target(std::string_view target, RequestHead& head) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const std::size_t host = target.find("//") + 2;
    const std::size_t slash = target.find('/', host);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  if (!target.starts_with('/') && target != "*") {
    throw ApiError(400, "the target of the request does not begin with a slash");
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  head.path = target.substr(0, mark);
  if (mark < target.size()) head.query = target.substr(mark + 1);
}

[[noreturn]] void refuse(const error_code& problem, bool is_in_head) {
  if (problem == error::header_limit) {
    throw ApiError(431, "the header of the request is too long");
  }
  if (problem == error::bad_version) {
    throw ApiError(505, "the server speaks HTTP/1.0 and HTTP/1.1");
  }
  throw ApiError(400, std::string("malformed HTTP in the ") + (is_in_head ? "header" : "body") +
                          " of the request: " + problem.message());
}

}  // namespace

// The parser calls the functions that end in _impl while it reads.
class RequestReader::Parser final : public beast::http::basic_parser<true> {
 public:
  explicit Parser(std::size_t head_bytes_max) : head_bytes_left_(head_bytes_max) {
    // The limit of the body is kept here, since it depends on the head.
    body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  std::size_t take(std::string_view bytes) {
    if (bytes.empty() || is_done()) return 0;
    // With the last chunk begun, Beast asserts that there are five bytes, which an end has at
    // least, though it may have seen fewer before: a build that keeps assertions would end.
    constexpr std::size_t end_bytes_min = 5;
    if (is_header_done() && chunked() && bytes.size() < end_bytes_min) return 0;
    const bool is_in_head = !is_header_done();
    // Beast's limit holds for what one call takes, and not for the line of the request with it.
    header_limit(static_cast<std::uint32_t>(head_bytes_left_));
    error_code problem;
    const std::size_t taken = put(boost::asio::buffer(bytes.data(), bytes.size()), problem);
    if (is_in_head && taken > head_bytes_left_) problem = error::header_limit;
    if (problem && problem != error::need_more) refuse(problem, !is_header_done());
    if (is_in_head) head_bytes_left_ -= taken;
    return taken;
  }

  State state() const {
    if (is_done()) return State::complete;
    return is_header_done() ? State::body : State::head;
  }

  RequestHead head;
  std::string body;
  std::uint64_t bytes_left = 0;

 private:
  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target,
                       int version, error_code&) override {
    head.method.assign(method.data(), method.size());
    head.is_http11 = version == 11;
    split_target({target.data(), target.size()}, head);
  }
  void on_response_impl(int, beast::string_view, int, error_code&) override {}

  // Fields behind a chunked body say nothing that the server needs.
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value,
                     error_code&) override {
    if (is_header_done()) return;
    if (head.fields.size() == fields_max) throw ApiError(431, "the request has too many fields");
    head.fields.push_back({{name.data(), name.size()}, {value.data(), value.size()}});
  }

  void on_header_impl(error_code&) override {
    head.keeps_alive = keep_alive();
    head.is_chunked = chunked();
    const auto length = content_length();
    head.body_bytes = length ? *length : 0;
    head.has_body = head.is_chunked || head.body_bytes != 0;
    head.expects_continue =
        head.is_http11 && equal_ignoring_case(head.field("Expect"), "100-continue");
    // Of several codings, or of several hosts, another server before this one might believe others.
    const auto codings = fields_named("Transfer-Encoding");
    if (codings > 1 ||
        (codings == 1 && !equal_ignoring_case(head.field("Transfer-Encoding"), "chunked"))) {
      throw ApiError(501, "the only transfer encoding that the server knows is chunked");
    }
    const auto hosts = fields_named("Host");
    if (hosts > 1) throw ApiError(400, "the request has more than one Host");
    if (head.is_http11 && hosts == 0) throw ApiError(400, "the request has no Host");
  }

  std::ptrdiff_t fields_named(std::string_view name) const {
    return std::ranges::count_if(
        head.fields, [&](const Field& field) { return equal_ignoring_case(field.name, name); });
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}

  std::size_t on_body_impl(beast::string_view piece, error_code&) override {
    if (piece.size() > bytes_left) throw ApiError(413, "the body of the request is too long");
    bytes_left -= piece.size();
    body.append(piece.data(), piece.size());
    return piece.size();
  }

  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view piece,
                                 error_code& problem) override {
    return on_body_impl(piece, problem);
  }
  void on_finish_impl(error_code&) override {}

  std::size_t head_bytes_left_;
};

RequestReader::RequestReader(std::size_t head_bytes_max)
    : parser_(std::make_unique<Parser>(head_bytes_max)) {}
RequestReader::~RequestReader() = default;
RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;

std::size_t RequestReader::take(std::string_view bytes) {
  return parser_->take(bytes);
}

RequestReader::State RequestReader::state() const {
  return parser_->state();
}

RequestHead& RequestReader::head() {
  return parser_->head;
}

void RequestReader::take_body(std::uint64_t bytes_max) {
  parser_->bytes_left = bytes_max;
}

std::string& RequestReader::body() {
  return parser_->body;
}

}  // namespace sluice::http
