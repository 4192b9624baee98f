// The id of a row, without making values of the rest of it: for an index of many rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::batch {

// The JSON text of the id that parse_row() finds in the line; nothing where that finds none.
std::optional<std::string> read_row_id(std::string_view line);

}  // namespace sluice::batch
