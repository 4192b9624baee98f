// sluice pull: downloads a model.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
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

// The path of the model that a reference names; it is downloaded if it is not here. Throws
// UsageError and Error.
std::filesystem::path find_or_pull(const std::string& reference);

}  // namespace sluice::cli
