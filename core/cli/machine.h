// sluice machine: what the program finds out about the machine, and what it decides.
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
