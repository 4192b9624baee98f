// A model laid out for a plan: what the engine allocates and runs.
//
// Separate from memory_plan.h, so that code that only reads plans need not include the decoder.
#pragma once

#include <memory>

#include "core/gguf/gguf.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"
#include "core/plan/memory_plan.h"

namespace sluice::plan {

// The plan, and the model's tensors laid out for it.
struct PlannedModel {
  std::unique_ptr<model::WeightLayout> layout;
  std::unique_ptr<model::Decoder> decoder;
  MemoryPlan plan;
};

// Throws ModelError for an unsupported model and UsageError for an unusable context. A plan that
// does not fit its budget is not an error here: see MemoryPlan::fits().
PlannedModel plan_model(const gguf::Model& model, const Baseline& baseline, const Request& request);

}  // namespace sluice::plan
