#include "streaming/expert_policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::streaming {

ExpertPolicy::ExpertPolicy(std::size_t experts, std::size_t places, double half_life)
    : half_life_(half_life), scores_(experts), expert_at_(places), is_used_(experts) {
  std::iota(expert_at_.begin(), expert_at_.end(), 0U);
}

std::span<const ExpertPolicy::Exchange> ExpertPolicy::use(std::span<const ExpertUse> uses,
                                                          std::size_t tokens, std::size_t usable) {
  exchanges_.clear();
  count(uses, tokens);
  usable = std::min(usable, expert_at_.size());
  is_used_.assign(is_used_.size(), false);
  for (const ExpertUse& use : uses) is_used_[use.expert] = true;
  for (const ExpertUse& use : uses) {
    const std::size_t place = place_of(use.expert);
    if (place < usable) continue;
    std::size_t lowest = usable;
    for (std::size_t i = 0; i < usable; ++i) {
      if (is_used_[expert_at_[i]]) continue;
      if (lowest == usable || scores_[expert_at_[i]] < scores_[expert_at_[lowest]]) lowest = i;
    }
    if (lowest == usable || scores_[use.expert] <= scores_[expert_at_[lowest]]) continue;
    const std::uint32_t loses = expert_at_[lowest];
    exchanges_.push_back({use.expert, loses});
    expert_at_[lowest] = use.expert;
    if (place < expert_at_.size()) expert_at_[place] = loses;
  }
  return exchanges_;
}

void ExpertPolicy::count(std::span<const ExpertUse> uses, std::size_t tokens) {
  const auto count = static_cast<double>(tokens);
  const double kept = std::exp2(-1 / half_life_);
  for (double& score : scores_) score *= kept;
  for (const ExpertUse& use : uses) scores_[use.expert] += (1 - kept) * use.tokens / count;
}

// The place of the expert; the number of places when it has none.
std::size_t ExpertPolicy::place_of(std::uint32_t expert) const {
  return static_cast<std::size_t>(std::ranges::find(expert_at_, expert) - expert_at_.begin());
}

}  // namespace sluice::streaming
