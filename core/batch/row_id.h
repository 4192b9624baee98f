// Reads the id of a row without building the rest of it, so that many rows can be indexed fast.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::batch {

// The JSON text of the id that parse_row() would find in the line; nothing where that finds none.
std::optional<std::string> read_row_id(std::string_view line);

}  // namespace sluice::batch
