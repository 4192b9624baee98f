// sluice bench: how fast a model runs here, compared with the limits of the machine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cli/options.h"

namespace sluice::cli {

struct BenchOptions {
  CommonOptions common;
  std::vector<std::uint32_t> prompt_tokens{128};  // each with each of the next
  std::vector<std::uint32_t> generated_tokens{32};
  std::uint32_t parallel = 1;  // sequences that decode together
  std::uint32_t repeat = 0;    // 0: what fits (core/cli/bench_allowance.h)
  std::string format = "table";
  bool json = false;  // the same as the format "json"
};

CLI::App* add_bench(CLI::App& program, BenchOptions& options);

// Returns the exit status.
int run_bench(const BenchOptions& options);

}  // namespace sluice::cli
