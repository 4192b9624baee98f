// sluice template: shows what a chat template makes of conversations.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

namespace sluice::cli {

struct TemplateOptions {
  std::filesystem::path model, bodies;  // with --template the bodies may stand alone, as `model`
  std::filesystem::path template_file;
  bool json = false;
};

CLI::App* add_template(CLI::App& program, TemplateOptions& options);

// Returns the exit status: with --json 0; without it 1 when a body could not be written. Throws
// ModelError, UsageError and std::system_error.
int run_template(const TemplateOptions& options);

}  // namespace sluice::cli
