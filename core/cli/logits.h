// sluice logits: the logits after every token of a sequence, as a file of float32.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/cli/options.h"

namespace sluice::cli {

struct LogitsOptions {
  CommonOptions common;
  std::vector<tokenizer::Token> tokens;
  std::uint32_t chunk = 0;  // tokens per step; 0: as many as the plan allows
  std::filesystem::path output;
};

CLI::App* add_logits(CLI::App& program, LogitsOptions& options);

// Returns the exit status.
int run_logits(const LogitsOptions& options);

}  // namespace sluice::cli
