// Reads the id of a row without building the rest of it, so that many rows can be indexed fast.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/rows/request.h"

namespace sluice::batch {

// The JSON text of the id that parse_row() would find in the line; nothing where that finds none.
std::optional<std::string> read_row_id(std::string_view line);

// The form and the id of a row that is too long to be parsed, as far as they stand in front of what
// is too long; `line` may be cut.
rows::RowHeader header_of_long_row(std::string_view line);

}  // namespace sluice::batch
