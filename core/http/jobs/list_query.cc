#include "core/http/jobs/list_query.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/number.h"
#include "core/http/transport/error.h"
#include "core/http/transport/message.h"

namespace sluice::http {
namespace {

std::size_t limit_in(std::string_view text, std::size_t most) {
  const auto limit = base::whole_number<std::size_t>(text);
  if (limit && *limit >= 1 && *limit <= most) return *limit;
  throw ApiError(400, fmt::format("\"limit\" must be a whole number from 1 to {}", most));
}

}  // namespace

ListQuery read_list_query(std::string_view query, std::size_t limit_default,
                          std::size_t limit_max) {
  ListQuery asked;
  asked.limit = limit_default;
  while (!query.empty()) {
    const std::string_view member = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(member.size() + 1, query.size()));
    const std::size_t equals = std::min(member.find('='), member.size());
    const std::string_view name = member.substr(0, equals);
    const std::string value = percent_decoded(member.substr(std::min(equals + 1, member.size())));
    if (name == "after") asked.after = value;
    if (name == "purpose") asked.purpose = value;
    if (name == "limit") asked.limit = limit_in(value, limit_max);
    if (name == "order") {
      asked.is_ascending = value == "asc";
      if (!asked.is_ascending && value != "desc") {
        throw ApiError(400, "\"order\" must be \"asc\" or \"desc\"");
      }
    }
  }
  return asked;
}

}  // namespace sluice::http
