// Predicts how fast a planned run would be here, or on a machine with another disk and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/cli/machine_rates.h"
#include "core/engine/engine.h"
#include "core/engine/machine_limits.h"

namespace sluice::cli {

struct PromptSpeed {
  double tokens_per_s = 0;
  std::uint64_t tokens = 0;  // of the prompt that it holds for
  double seconds = 0;        // until the first token behind it
};

// Of decoding: tokens per second of all sequences together.
struct SpeedRange {
  double low = 0;  // while the machine is as slow as it has been seen, now or before
  double usual = 0;
  double high = 0;  // while it is as fast
};

struct Prediction {
  KnownLimits limits;  // with those of the other machine
  // While the machine is as fast as it has been seen; without the time for memory where caches hold
  // a good part of the weights (bytes_beyond_caches).
  engine::DecodeBound bound;
  std::size_t earlier_runs = 0;  // like this one, whose speed is known
  // The share of the CPUs' time that others took meanwhile. The range is the wider for it.
  double cpu_share_of_others = 0;
  // Nothing if the plan does not fit; never more than the bound.
  std::optional<SpeedRange> tokens_per_s;
  std::optional<PromptSpeed> prompt;
  // The usual speed, if no expert that is needed is in memory; only for a mixture that is streamed.
  // Never more than tokens_per_s.
  std::optional<double> tokens_per_s_without_hits;
};

// Takes some seconds, and adds what it has measured to the profile of this machine; warns, unless
// `quiet`, where that cannot be written. `planner` has read the header of `model`, and `run` is its
// plan for `options`. Throws what engine::measure_machine_limits and RunPlanner::rehearse_step
// throw.
Prediction predict(const engine::RunPlanner& planner, const std::filesystem::path& model,
                   const engine::EngineOptions& options, const engine::PlannedRun& run,
                   double hit_rate, const OtherMachine& other, bool quiet);

// The least budget with which no weight is read from the disk in each step, for the context of
// `run`: a little more than enough.
std::uint64_t budget_without_streaming(const engine::RunPlanner& planner,
                                       engine::EngineOptions options,
                                       const engine::PlannedRun& run);

}  // namespace sluice::cli
