// sluice machine: what this program sees of the machine, and what it makes of it.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

struct MachineOptions {
  bool json = false;
};

CLI::App* add_machine(CLI::App& program, MachineOptions& options);

// Returns the exit status.
int run_machine(const MachineOptions& options);

}  // namespace sluice::cli
