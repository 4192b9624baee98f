// sluice plan hf:OWNER/REPO: all models of a repository at one budget, and which of them to take.
#pragma once

#include "core/cli/plan.h"

namespace sluice::cli {

// options.common.model is a folder of models_of_repository(). Measures memory, disk and processors
// once. Returns the exit status: 4 when none fits the budget.
int run_plan_repository(const PlanOptions& options);

}  // namespace sluice::cli
