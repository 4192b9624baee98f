// sluice batch: a file of rows in, a file of results out.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/cli/chat_setup.h"
#include "core/cli/options.h"
#include "core/cli/row_setup.h"

namespace sluice::cli {

// The exit status of a batch that was stopped before all rows were done. The same command does the
// rest. EX_TEMPFAIL of sysexits(3), which job schedulers understand as "try again".
inline constexpr int exit_status_resume = 75;

struct BatchOptions : ResultOptions {
  BatchOptions() { tokens_max = 256; }
  engine::PromptCacheOptions prompt_cache;
  std::filesystem::path input;
  std::filesystem::path output;
  std::uint32_t parallel = 0;  // 0: auto
  std::string shard = "1/1";
  std::string truncate = "no";
  std::uint32_t grace_s = 5;
  bool ordered = false;
  bool retry_errors = false;
  bool restart = false;
};

CLI::App* add_batch(CLI::App& program, BatchOptions& options);

// Returns the exit status.
int run_batch(const BatchOptions& options);

}  // namespace sluice::cli
