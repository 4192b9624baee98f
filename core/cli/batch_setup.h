// What a batch needs before its first step: the settings that results depend on, the output with
// what is in it already, and the model's part, known from its header alone.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/batch/input.h"
#include "core/batch/job.h"
#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/batch/task_maker.h"
#include "core/cli/batch.h"
#include "core/engine/session.h"

namespace sluice::cli {

batch::TaskOptions task_options(const BatchOptions& options);

// Reads the beginning of the model's file to tell it from others.
batch::JobState job_state(const BatchOptions& options, const batch::Input& input,
                          const batch::Shard& shard);

// Opens the output and compares its state with `state`; writes the state when the job begins.
// Throws UsageError, which names the remedies, when they differ.
std::unique_ptr<batch::Journal> open_journal(const BatchOptions& options,
                                             const batch::JobState& state);

// How the model writes conversations. `tokenizer` outlives the result. Where the model's own format
// is not known, encoding throws what says so: rows without messages do not need it.
batch::ChatFormat chat_format(const std::string& name, const std::string& chat_template,
                              const tokenizer::Tokenizer& tokenizer);

// The engine and how to use it.
struct PreparedEngine {
  std::unique_ptr<engine::Engine> engine;
  batch::JobOptions job;
};

// Looks through the rows that are left for the longest, chooses how many sequences run together and
// opens the engine for them. Throws Interrupted.
PreparedEngine prepare_engine(const BatchOptions& options, const batch::Input& input,
                              const batch::Shard& shard,
                              const std::vector<batch::ResultFacts>& done);

}  // namespace sluice::cli
