// sluice top: the sluice processes that run on this machine.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

struct TopOptions {
  bool json = false;
  double interval_s = 0;  // 0: shows them once
};

CLI::App* add_top(CLI::App& program, TopOptions& options);

// Returns the exit status.
int run_top(const TopOptions& options);

}  // namespace sluice::cli
