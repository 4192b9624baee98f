// sluice imatrix: measures over a text which columns of a model's weights matter.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>

#include "core/cli/options.h"

namespace sluice::cli {

struct ImatrixOptions {
  CommonOptions common;
  std::filesystem::path text, output;
  std::uint32_t chunks_max = 0;  // 0: all
};

CLI::App* add_imatrix(CLI::App& program, ImatrixOptions& options);

// Returns the exit status.
int run_imatrix(const ImatrixOptions& options);

}  // namespace sluice::cli
