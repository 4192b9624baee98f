// Which web pages may use the server. A browser says where a page comes from (Origin) and which
// name it used for the server (Host); both are checked, because a page of somebody else can send
// requests to this machine, even under a name of its own (DNS rebinding).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/transport/message.h"

namespace sluice::http {

struct OriginRules {
  std::vector<std::string> allowed;  // "https://chat.example.org"; "*": any
  // Whether any Host will do. Where a key is needed, a page that has none gains nothing.
  bool any_host = false;
  // The same for requests that came in where other machines can reach the server.
  bool any_host_from_afar = false;
};

// Throws UsageError for a text that is neither "*" nor scheme://host[:port].
void check_origin(const std::string& origin);

// Why the request is refused; nothing if it is not. Programs that are no browsers send no Origin.
std::optional<std::string> origin_problem(const OriginRules& rules, const RequestHead& head);

// The fields that let the page read the answer, for an allowed origin; and, for a question ahead of
// a request (OPTIONS), what may be sent.
std::vector<Field> origin_fields(const OriginRules& rules, const RequestHead& head);

}  // namespace sluice::http
