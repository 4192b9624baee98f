// Prepares a batch before its first step: the settings of its rows, and an engine for them, planned
// from the header of the model alone.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>

#include "core/batch/done_rows.h"
#include "core/batch/input.h"
#include "core/batch/job.h"
#include "core/cli/batch.h"
#include "core/engine/engine.h"
#include "core/rows/task_maker.h"

namespace sluice::cli {

// The engine, and the settings to use it with.
struct PreparedEngine {
  std::unique_ptr<engine::Engine> engine;
  batch::JobOptions job;
};

// What is known of a job before its engine.
struct KnownJob {
  const batch::Input& input;
  const batch::DoneRows& done;
  batch::LeftOut left_out;     // what rows need that an earlier engine has left out
  std::optional<std::tm> now;  // that templates see
};

// The engine's options for `parallel` rows together, each with at most `positions` tokens, before
// any row is known. `planner` is of the model.
engine::EngineOptions options_of_rows(const CommonOptions& common,
                                      const engine::RunPlanner& planner, std::uint32_t positions,
                                      std::uint32_t parallel);

// Examines the remaining rows, chooses how many sequences run together, and opens the engine for
// them, with this stop check. Throws Interrupted.
PreparedEngine prepare_engine(const BatchOptions& options, const KnownJob& job,
                              std::function<void()> stop_check);

}  // namespace sluice::cli
