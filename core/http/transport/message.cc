#include "core/http/transport/message.h"

#include <algorithm>
#include <charconv>

namespace sluice::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view RequestHead::field(std::string_view name) const {
  for (const Field& field : fields) {
    if (equal_ignoring_case(field.name, name)) return field.value;
  }
  return {};
}

std::string_view reason_phrase(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return status < 500 ? "Error" : "Internal Server Error";
  }
}

std::string percent_decoded(std::string_view part) {
  std::string text;
  for (std::size_t at = 0; at < part.size(); ++at) {
    unsigned value = 0;
    const char* const digits = part.data() + at + 1;
    const bool is_code = part[at] == '%' && part.size() - at > 2 &&
                         std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    text += is_code ? static_cast<char>(value) : part[at];
    if (is_code) at += 2;
  }
  return text;
}

}  // namespace sluice::http
