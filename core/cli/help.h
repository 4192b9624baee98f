// Formats `--help`: the options of the command first, then those that commands share, each with its
// default and without CLI11's notes on what excludes what. Lines fit the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::cli {

inline constexpr const char* common_group = "Common options";
inline constexpr const char* sampling_group = "Sampling";

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace sluice::cli
