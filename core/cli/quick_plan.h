// A plan with a speed that takes no measurement of its own: what the rates of a machine allow, less
// what runs were found to lose.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/cli/machine_rates.h"
#include "core/cli/plan.h"
#include "core/engine/engine.h"

namespace sluice::cli {

// Opens a model after others have been planned, whose memory is given back before: a plan counts
// what a process of its own would hold. Throws as RunPlanner does.
engine::RunPlanner next_planner(const std::filesystem::path& model);

// Of fewer weights than that, caches hold a good part, and other things than memory take the time.
constexpr std::uint64_t bytes_beyond_caches = std::uint64_t{256} << 20;

struct QuickPlan {
  engine::PlannedRun run;
  engine::DecodeWork work;  // with the hit rate of the options, or the usual one

  // Of all sequences together. Of an encoder, those that it reads, at most.
  double tokens_per_s(const engine::MachineLimits& limits) const;
};

QuickPlan quick_plan(const engine::RunPlanner& planner, const PlanOptions& options);

// Measures this machine for runs like `run`, whose file is `model`, and adds that to its profile.
// They are then as the options say, where they do.
KnownLimits measure_limits(const std::filesystem::path& model, const engine::RunPlanner& planner,
                           const engine::PlannedRun& run, const PlanOptions& options);

// The tokens a second that a run of the file would reach here in the memory that there is, from
// what is known of this machine; measures nothing. Nothing if that is not enough, if it does not
// fit, or if the model cannot be run or writes no text.
std::optional<double> known_tokens_per_s(const std::filesystem::path& model);

// The quantisation that a file's name tells of, or else its header.
std::string quant_of(std::string_view name, const gguf::Model& model);

}  // namespace sluice::cli
