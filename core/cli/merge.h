// sluice merge: merges the parts of a batch in the order of the input.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <vector>

namespace sluice::cli {

struct MergeOptions {
  std::filesystem::path output;
  std::vector<std::filesystem::path> parts;
  bool force = false;  // replace an existing output
  bool quiet = false;
};

CLI::App* add_merge(CLI::App& program, MergeOptions& options);

// Returns the exit status.
int run_merge(const MergeOptions& options);

}  // namespace sluice::cli
