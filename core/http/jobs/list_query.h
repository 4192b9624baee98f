// What a client says about the part of a list that it wants: "after=ID&limit=N&order=asc".
//
// Threads: any.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace sluice::http {

struct ListQuery {
  std::string after;  // the id before the first item; empty: from the beginning
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  bool is_ascending = false;  // oldest first
  std::string purpose;        // empty: of all files
};

// Reads the query of a request, in which members that are not known mean nothing. Without a limit
// it is `limit_default`. Throws ApiError (400), which names the member.
ListQuery read_list_query(std::string_view query, std::size_t limit_default, std::size_t limit_max);

}  // namespace sluice::http
