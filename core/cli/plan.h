// sluice plan: predicts the memory and the speed of a run, without running it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/cli/machine_rates.h"
#include "core/cli/options.h"
#include "core/engine/engine.h"

namespace sluice::cli {

// The command that is planned for.
enum class PlannedUse { run, chat, serve, batch, embed };  // embed: or rerank

struct PlanOptions {
  CommonOptions common;
  PlannedUse use = PlannedUse::run;
  std::uint32_t parallel = 0;      // 0: one; of a server what it chooses itself
  std::optional<double> hit_rate;  // of experts
  OtherMachine other;
  std::set<std::string> said_by_for;  // what --for says: options that say the same, "use", ...
  bool json = false;
  // A table of this model and others, or of folders of models, at several budgets.
  bool table = false;
  std::vector<std::filesystem::path> others;
  std::vector<std::uint64_t> budgets;  // empty: --budget, or 2, 4, 6 and 8 GiB
};

// What the command that is planned for would ask of the engine.
engine::EngineOptions options_for_use(const PlanOptions& options, const engine::RunPlanner& planner,
                                      std::uint32_t model_context);

// Whether the model keeps nothing of a text: it reads it in one step, and writes none.
bool reads_whole(const plan::MemoryPlan& plan);

// --disk and --dram.
void add_other_machine_options(CLI::App& command, PlanOptions& options);

CLI::App* add_plan(CLI::App& program, PlanOptions& options);

// Returns the exit status: 4 when the budget cannot be met.
int run_plan(const PlanOptions& options);

}  // namespace sluice::cli
