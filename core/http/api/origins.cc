#include "core/http/api/origins.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.h"

namespace sluice::http {
namespace {

bool is_allowed(const OriginRules& rules, std::string_view origin) {
  return std::ranges::any_of(rules.allowed, [&](const std::string& allowed) {
    return allowed == "*" || equal_ignoring_case(allowed, origin);
  });
}

// "localhost:8080" -> "localhost", "[::1]:8080" -> "[::1]".
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// A name that means this machine, or an address, which no name server can turn to this machine.
bool is_host_of_own(std::string_view host) {
  const std::string_view name = without_port(host);
  const bool is_address =
      name.starts_with('[') ||
      (!name.empty() && name.find_first_not_of("0123456789.") == std::string_view::npos);
  const bool is_localhost =
      equal_ignoring_case(name, "localhost") ||
      (name.size() > 10 && equal_ignoring_case(name.substr(name.size() - 10), ".localhost"));
  return host.empty() || is_address || is_localhost;
}

std::string_view host_of(std::string_view origin) {
  const std::size_t slashes = origin.find("://");
  return slashes == std::string_view::npos ? std::string_view() : origin.substr(slashes + 3);
}

}  // namespace

void check_origin(const std::string& origin) {
  if (origin == "*") return;
  const std::string_view host = host_of(origin);
  const bool is_plain = std::ranges::all_of(origin, [](char c) { return c > ' ' && c < '\x7f'; });
  if (is_plain && !host.empty() && host.find_first_of("/?#") == std::string_view::npos) return;
  throw UsageError(fmt::format(
      "--cors {}: give an origin such as https://chat.example.org, without a path, or *", origin));
}

std::optional<std::string> origin_problem(const OriginRules& rules, const RequestHead& head) {
  const std::string_view host = head.field("Host");
  const bool any_host = rules.any_host || (rules.any_host_from_afar && !head.is_from_here);
  if (!any_host && !is_host_of_own(host)) {
    return "the name of the server in Host is neither localhost nor an address, and a server "
           "without keys answers to no other: start it with --api-key-file FILE, or with "
           "--insecure if every page in a browser on this machine may use it";
  }
  const std::string_view origin = head.field("Origin");
  const bool is_own = !host.empty() && equal_ignoring_case(host_of(origin), host);
  if (origin.empty() || is_own || is_allowed(rules, origin)) return std::nullopt;
  return "pages of this origin may not use the server (--cors)";
}

std::vector<Field> origin_fields(const OriginRules& rules, const RequestHead& head) {
  const std::string_view origin = head.field("Origin");
  if (origin.empty() || !is_allowed(rules, origin)) return {};
  std::vector<Field> fields = {{"Access-Control-Allow-Origin", std::string(origin)},
                               {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
                               {"Vary", "Origin"}};
  if (head.method == "OPTIONS") {
    fields.push_back({"Access-Control-Allow-Methods", "GET, POST, DELETE"});
    fields.push_back({"Access-Control-Allow-Headers", "*, Authorization, Content-Type"});
    fields.push_back({"Access-Control-Max-Age", "600"});
  }
  return fields;
}

}  // namespace sluice::http
