#include "core/batch/row_tasks.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "core/batch/row_id.h"
#include "core/rows/row_problem.h"

namespace sluice::batch {

std::variant<rows::Task, rows::RefusedRow> RowTasks::make(std::uint64_t row) const {
  const std::string line = input_.read(row);
  rows::ParsedRow parsed;
  try {
    if (line.size() > row_bytes_max_) {
      return rows::RefusedRow{
          header_of_long_row(line), "invalid_request",
          fmt::format("the row has {} bytes, the most is {}", line.size(), row_bytes_max_)};
    }
    parsed = rows::parse_row(line, row, maker_.options().defaults);
  } catch (const std::exception& error) {  // a defect, or no memory
    return rows::RefusedRow{{}, rows::cannot_run, rows::problem_of(error)};
  }
  const auto first = input_.first_of_same_id(row);
  if (parsed.request && first) {
    return rows::RefusedRow{parsed.header, "duplicate_id",
                            fmt::format("line {} has the same id {}", input_.line_number(*first),
                                        parsed.header.id.dump())};
  }
  return maker_.make(std::move(parsed), row);
}

}  // namespace sluice::batch
