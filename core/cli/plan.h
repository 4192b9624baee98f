// sluice plan: predicts the memory and the speed of a run, without running it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "core/cli/options.h"

namespace sluice::cli {

// The command that is planned for.
enum class PlannedUse { run, serve, batch };

struct PlanOptions {
  CommonOptions common;
  PlannedUse use = PlannedUse::run;
  std::uint32_t parallel = 0;      // 0: one; of a server what it chooses itself
  std::optional<double> hit_rate;  // of experts
  // Bytes per second of another machine's disk and memory; nothing: as measured here.
  std::optional<double> disk_bytes_per_s, dram_bytes_per_s;
  bool json = false;
};

CLI::App* add_plan(CLI::App& program, PlanOptions& options);

// Returns the exit status: 4 when the budget cannot be met.
int run_plan(const PlanOptions& options);

}  // namespace sluice::cli
