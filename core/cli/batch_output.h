// The output of a batch, with the results that it has already, and the record beside it of how the
// job was started; and what is said of its results.
#pragma once

#include <ctime>
#include <memory>
#include <optional>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/cli/batch.h"

namespace sluice::cli {

struct OpenedOutput {
  std::unique_ptr<batch::Journal> journal;
  std::optional<std::tm> now;  // that templates see; nothing: they do not ask
};

// Opens the output for appending, and writes the state when the job begins. Changes no existing
// file before it has checked all of them. Throws UsageError, with remedies, when there is a file
// that no batch has written, or one that another job has begun. With --retry-errors it first
// removes results that are errors, so that their rows are computed again.
OpenedOutput open_output(const BatchOptions& options, const batch::Input& input,
                         const batch::Shard& shard);

// Says the errors by code, each with an example, and the answers that were cut off.
void tell_outcomes(const batch::DoneRows& done);

// Sorts the results of a complete job into the order of the input, unless they are sorted.
void order_results(batch::Journal& journal);

}  // namespace sluice::cli
