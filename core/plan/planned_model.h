// A model that is laid out for a plan: what the engine allocates and runs.
//
// Apart from memory_plan.h so that those who only read plans need not know what a decoder is.
#pragma once

#include <memory>

#include "core/gguf/gguf.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"
#include "core/plan/memory_plan.h"

namespace sluice::plan {

// A model's tensors laid out for a plan, and the plan.
struct PlannedModel {
  std::unique_ptr<model::WeightLayout> layout;
  std::unique_ptr<model::Decoder> decoder;
  MemoryPlan plan;
};

// Throws ModelError for an unsupported model and UsageError for a context of no use. A budget that
// cannot be met is not an error here: see MemoryPlan::fits().
PlannedModel plan_model(const gguf::Model& model, const Baseline& baseline, const Request& request);

}  // namespace sluice::plan
