// The memory plan as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "core/plan/memory_plan.h"

namespace sluice::plan {

// [{"name", "bytes", "kind"}, ...], in the order of the plan.
nlohmann::ordered_json lines_json(const MemoryPlan& plan);

// {"fits", "total_bytes", "budget_bytes", "budget_source", "least_budget_bytes", "context",
// "pinned_bytes", "lines"}.
nlohmann::ordered_json plan_json(const MemoryPlan& plan);

}  // namespace sluice::plan
