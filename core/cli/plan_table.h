// sluice plan --table: many files, or quantisations of one, at several budgets, side by side.
#pragma once

#include "core/cli/plan.h"

namespace sluice::cli {

// Returns the exit status. Measures memory, disk and processors once; speeds are what these allow,
// less what runs were found to lose.
int run_plan_table(const PlanOptions& options);

}  // namespace sluice::cli
