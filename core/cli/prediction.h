// Predicts how fast a planned run would be here, or on a machine with another disk and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/engine/engine.h"
#include "core/engine/machine_limits.h"

namespace sluice::cli {

// Bytes per second that replace those that are measured here.
struct OtherMachine {
  std::optional<double> disk_bytes_per_s, dram_bytes_per_s;
};

struct PromptSpeed {
  double tokens_per_s = 0;
  std::uint64_t tokens = 0;  // of the prompt that it holds for
  double seconds = 0;        // until the first token behind it
};

struct Prediction {
  engine::MachineLimits limits;  // with those of the other machine
  engine::DecodeBound bound;
  // Nothing if the plan does not fit.
  std::optional<double> tokens_per_s;  // of all sequences together
  std::optional<PromptSpeed> prompt;
  // As tokens_per_s, if no expert that is needed is in memory; only for a mixture that is streamed.
  // Never more than tokens_per_s.
  std::optional<double> tokens_per_s_without_hits;
};

// Takes some seconds. `planner` has read the header of `model`, and `run` is its plan for
// `options`. Throws what engine::measure_machine_limits and engine::rehearse_run throw.
Prediction predict(const engine::RunPlanner& planner, const std::filesystem::path& model,
                   const engine::EngineOptions& options, const engine::PlannedRun& run,
                   double hit_rate, const OtherMachine& other);

// The least budget with which no weight is read from the disk in each step, for the context of
// `run`: a little more than enough.
std::uint64_t budget_without_streaming(const engine::RunPlanner& planner,
                                       engine::EngineOptions options,
                                       const engine::PlannedRun& run);

}  // namespace sluice::cli
