// What the router of a layer chose for a token, for an ExpertWatch.
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

}  // namespace sluice::model
