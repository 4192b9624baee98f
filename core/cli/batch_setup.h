// Prepares a batch before its first step: the settings of its rows, and an engine for them, planned
// from the header of the model alone.
#pragma once

#include <functional>
#include <memory>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/job.h"
#include "core/cli/batch.h"
#include "core/engine/engine.h"
#include "core/rows/task_maker.h"

namespace sluice::cli {

rows::TaskOptions task_options(const BatchOptions& options);

// The engine, and the settings to use it with.
struct PreparedEngine {
  std::unique_ptr<engine::Engine> engine;
  batch::JobOptions job;
};

// Examines the remaining rows, chooses how many sequences run together, and opens the engine for
// them, with this stop check. `known` is what rows need that an earlier job has left out. Throws
// Interrupted.
PreparedEngine prepare_engine(const BatchOptions& options, const batch::Input& input,
                              const batch::DoneRows& done, const batch::LeftOut& known,
                              std::function<void()> stop_check);

}  // namespace sluice::cli
