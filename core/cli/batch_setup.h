// What a batch needs before its first step: the settings of its rows, and an engine for them that
// is planned from the header of the model alone.
#pragma once

#include <functional>
#include <memory>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/job.h"
#include "core/batch/task_maker.h"
#include "core/cli/batch.h"
#include "core/engine/engine.h"

namespace sluice::cli {

batch::TaskOptions task_options(const BatchOptions& options);

// The engine and how to use it.
struct PreparedEngine {
  std::unique_ptr<engine::Engine> engine;
  batch::JobOptions job;
};

// Looks at the rows that are left, chooses how many sequences run together and opens the engine for
// them, with this stop check. `known`: what rows need that a job before has left out. Throws
// Interrupted.
PreparedEngine prepare_engine(const BatchOptions& options, const batch::Input& input,
                              const batch::DoneRows& done, const batch::LeftOut& known,
                              std::function<void()> stop_check);

}  // namespace sluice::cli
