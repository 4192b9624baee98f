// sluice plan: predicts the memory and the speed of a run, without running it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "core/cli/options.h"

namespace sluice::cli {

struct PlanOptions {
  CommonOptions common;
  std::uint32_t parallel = 1;
  std::optional<double> hit_rate;  // of experts
  bool json = false;
};

CLI::App* add_plan(CLI::App& program, PlanOptions& options);

// Returns the exit status: 4 when the budget cannot be met.
int run_plan(const PlanOptions& options);

}  // namespace sluice::cli
