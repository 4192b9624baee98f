#include "core/batch/row_tasks.h"

#include <fmt/format.h>

namespace sluice::batch {

std::variant<rows::Task, rows::RefusedRow> RowTasks::make(std::uint64_t row) const {
  rows::ParsedRow parsed = rows::parse_row(input_.read(row), row, maker_.options().defaults);
  const auto first = input_.first_of_same_id(row);
  if (parsed.request && first) {
    return rows::RefusedRow{parsed.header, "duplicate_id",
                            fmt::format("line {} has the same id {}", input_.line_number(*first),
                                        parsed.header.id.dump())};
  }
  return maker_.make(std::move(parsed), row);
}

}  // namespace sluice::batch
