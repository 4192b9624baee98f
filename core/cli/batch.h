// sluice batch: a file of rows in, a file of results out.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/cli/chat_setup.h"
#include "core/cli/options.h"
#include "core/cli/row_setup.h"

namespace sluice::cli {

// The exit status of a batch that was stopped before all rows were done. The same command does the
// rest. EX_TEMPFAIL of sysexits(3), which job schedulers understand as "try again".
inline constexpr int exit_status_resume = 75;

// Runs a job whose rows go to `output`, and returns its status. A signal that ends it leaves the
// rest to the same command; rows that went to standard output it would compute anew, so then the
// signal is thrown on (Interrupted).
int run_resumable(const std::filesystem::path& output, const std::function<int()>& run);

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
