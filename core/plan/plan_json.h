// The memory plan as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "core/plan/memory_plan.h"

namespace sluice::plan {

// [{"name", "bytes", "kind"}, ...], in the order of the plan.
nlohmann::ordered_json lines_json(const MemoryPlan& plan);

}  // namespace sluice::plan
