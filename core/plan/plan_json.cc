#include "core/plan/plan_json.h"

namespace sluice::plan {

using nlohmann::ordered_json;

ordered_json lines_json(const MemoryPlan& plan) {
  ordered_json lines = ordered_json::array();
  for (const Line& line : plan.lines) {
    lines.push_back({{"name", line.name}, {"bytes", line.bytes}, {"kind", kind_name(line.kind)}});
  }
  return lines;
}

ordered_json plan_json(const MemoryPlan& plan) {
  return {{"fits", plan.fits()},
          {"total_bytes", plan.total_bytes()},
          {"budget_bytes", plan.budget.bytes},
          {"budget_source", plan.budget.source},
          {"least_budget_bytes", plan.least_budget_bytes},
          {"context", plan.context},
          {"pinned_bytes", plan.tape.pinned_bytes},
          {"lines", lines_json(plan)}};
}

}  // namespace sluice::plan
