// sluice recommend: which of the well-known models to take for this machine, and how to get it.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "core/cli/plan.h"

namespace sluice::cli {

struct RecommendOptions {
  PlanOptions plan;  // the budget, the threads, and speeds of another machine
  std::string task = "chat";
  std::filesystem::path list;  // empty: the one that comes with the program
};

CLI::App* add_recommend(CLI::App& program, RecommendOptions& options);

// Returns the exit status: 4 when no model fits the budget.
int run_recommend(const RecommendOptions& options);

}  // namespace sluice::cli
