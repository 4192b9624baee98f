// sluice perplexity: how well a model predicts a text.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>

#include "core/cli/options.h"

namespace sluice::cli {

struct PerplexityOptions {
  CommonOptions common;
  std::filesystem::path file;
  std::uint64_t windows_max = 0;  // 0: all
  bool json = false;
};

CLI::App* add_perplexity(CLI::App& program, PerplexityOptions& options);

// Returns the exit status.
int run_perplexity(const PerplexityOptions& options);

}  // namespace sluice::cli
