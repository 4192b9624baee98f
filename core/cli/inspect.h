// sluice inspect: what is in a model file, from its header alone.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

namespace sluice::cli {

struct InspectOptions {
  std::filesystem::path model;
  bool tensors = false;
  bool json = false;
};

CLI::App* add_inspect(CLI::App& program, InspectOptions& options);

// Returns the exit status.
int run_inspect(const InspectOptions& options);

}  // namespace sluice::cli
