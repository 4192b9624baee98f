#include "streaming/expert_demand.h"

#include <algorithm>
#include <cmath>

namespace sluice::streaming {

double ExpertGroup::share_needed(std::size_t tokens) const {
  const double taken = static_cast<double>(used) / static_cast<double>(experts);
  return 1 - std::pow(1 - taken, static_cast<double>(tokens));
}

std::span<const ExpertGroup>::iterator find_group(std::span<const ExpertGroup> groups,
                                                  std::size_t turn) {
  const auto group = std::ranges::upper_bound(groups, turn, {}, &ExpertGroup::end_turn);
  return group != groups.end() && group->first_turn <= turn ? group : groups.end();
}

void ExpertDemand::expect(std::size_t group, std::span<const ExpertUse> uses) {
  known_ = group;
  const std::size_t experts = groups_.at(group).experts;
  is_needed_.assign(experts, false);
  for (const ExpertUse& use : uses) is_needed_.at(use.expert) = true;
  most_are_needed_ = 4 * uses.size() >= 3 * experts;
}

void ExpertDemand::pass(std::size_t turn) {
  if (known_ != none && turn >= groups_[known_].end_turn()) known_ = none;
}

std::size_t ExpertDemand::next(std::size_t turn) const {
  if (known_ == none) return turn;
  const ExpertGroup& group = groups_[known_];
  if (turn < group.first_turn || turn >= group.end_turn()) return turn;
  std::size_t expert = (turn - group.first_turn) / group.turns_each;
  if (is_needed_[expert]) return turn;
  while (expert < group.experts && !is_needed_[expert]) ++expert;
  return group.first_turn_of(expert);
}

bool ExpertDemand::is_known(std::size_t turn) const {
  const auto group = find_group(groups_, turn);
  return group == std::span(groups_).end() || most_are_needed_ ||
         static_cast<std::size_t>(group - std::span(groups_).begin()) == known_;
}

}  // namespace sluice::streaming
