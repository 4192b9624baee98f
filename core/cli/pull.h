// sluice pull: downloads a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::cli {

struct PullOptions {
  std::string reference;
  bool insecure_http = false;
  bool quiet = false;
};

CLI::App* add_pull(CLI::App& program, PullOptions& options);

// Returns the exit status.
int run_pull(const PullOptions& options);

}  // namespace sluice::cli
