// sluice merge: the parts of a batch, put together in the order of the input.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <vector>

namespace sluice::cli {

struct MergeOptions {
  std::filesystem::path output;
  std::vector<std::filesystem::path> parts;
  bool force = false;  // an output that is there is replaced
  bool quiet = false;
};

CLI::App* add_merge(CLI::App& program, MergeOptions& options);

// Returns the exit status.
int run_merge(const MergeOptions& options);

}  // namespace sluice::cli
