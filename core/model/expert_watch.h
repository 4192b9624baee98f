// What the router of a layer chose for a token: to be watched, or to be replaced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace sluice::model {

struct ExpertChoices {
  std::size_t group;    // of WeightLayout::expert_groups(): the layers with experts, from 0
  std::size_t experts;  // of the group
  std::size_t column;   // of the step
  std::span<const std::uint32_t> chosen;  // by descending score; valid for the call
};

// Called once for each token and group, by the thread that runs the step. A step that fails may
// already have called it.
using ExpertWatch = std::function<void(const ExpertChoices&)>;

// Replaces the experts that a router chose for a token: `chosen` of `experts`, all different. Their
// weights stay as they are. For steps whose weights mean nothing, such as those of a rehearsal.
// Called by the thread that runs the step.
using ExpertChooser = std::function<void(std::size_t experts, std::span<std::uint32_t> chosen)>;

}  // namespace sluice::model
