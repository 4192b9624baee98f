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

}  // namespace sluice::plan
