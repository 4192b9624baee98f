// The output of a batch with what is in it already, and the record beside it of what the job was
// begun with.
#pragma once

#include <memory>

#include "core/batch/input.h"
#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/cli/batch.h"
#include "core/gguf/gguf.h"

namespace sluice::cli {

// What the results of the job depend on.
batch::JobState job_state(const BatchOptions& options, const batch::Input& input,
                          const batch::Shard& shard, const gguf::Model& model);

// Opens the output, ready to be appended to, and writes the state when the job begins. Nothing that
// is there is changed before all of it has been looked at. Throws UsageError, which names the
// remedies, when a file is there that no batch has written, or that another job has begun.
// With --retry-errors results that are errors are taken out first, so that their rows are computed
// again.
std::unique_ptr<batch::Journal> open_journal(const BatchOptions& options, const batch::Input& input,
                                             const batch::Shard& shard);

// Brings the results of a job that is complete into the order of the input, unless they are in it.
void order_results(batch::Journal& journal);

}  // namespace sluice::cli
