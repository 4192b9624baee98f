// sluice tokenize: the tokens of a text.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice::cli {

struct TokenizeOptions {
  std::filesystem::path model;
  std::optional<std::string> text;  // "-" or nothing: standard input, unless there is a file
  std::filesystem::path file;
  bool ids_only = false;
  bool no_bos = false;
  bool parse_special = false;
};

CLI::App* add_tokenize(CLI::App& program, TokenizeOptions& options);

// Returns the exit status. Throws ModelError, UsageError and std::system_error.
int run_tokenize(const TokenizeOptions& options);

}  // namespace sluice::cli
