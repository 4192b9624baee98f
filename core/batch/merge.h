// Merges the parts of a batch that was divided with --shard, in the order of the input.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "core/batch/done_rows.h"

namespace sluice::batch {

// Writes the results of all parts to `output`, which appears when it is complete. It must be none
// of the parts, and may replace another output of a batch, whose state is removed, but no other
// file. Each part needs its state beside it. Throws UsageError when the parts do not belong to one
// job, one is given twice, or the output is such another file, Error when a row is missing or
// occurs twice, std::system_error for I/O, and what `stop_check` throws, which is called for each
// row that is written. Returns all rows: how many are errors, and of which kind.
DoneRows merge_parts(const std::vector<std::filesystem::path>& parts,
                     const std::filesystem::path& output,
                     const std::function<void()>& stop_check = {});

}  // namespace sluice::batch
