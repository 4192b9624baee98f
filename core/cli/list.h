// sluice list and sluice rm: the models that are here.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::cli {

struct ListOptions {
  bool json = false;
};

struct RemoveOptions {
  std::string name;
};

CLI::App* add_list(CLI::App& program, ListOptions& options);
CLI::App* add_remove(CLI::App& program, RemoveOptions& options);

// Return the exit status.
int run_list(const ListOptions& options);
int run_remove(const RemoveOptions& options);

}  // namespace sluice::cli
