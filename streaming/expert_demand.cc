#include "streaming/expert_demand.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

ExpertDemand::ExpertDemand(std::vector<ExpertGroup> groups, std::size_t turns)
    : groups_(std::move(groups)), group_of_(turns + 1, none) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::fill(group_of_.begin() + static_cast<std::ptrdiff_t>(groups_[g].first_turn),
              group_of_.begin() + static_cast<std::ptrdiff_t>(groups_[g].end_turn()), g);
  }
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
  if (known_ == none || group_of_[turn] != known_) return turn;
  const ExpertGroup& group = groups_[known_];
  std::size_t expert = (turn - group.first_turn) / group.turns_each;
  if (is_needed_[expert]) return turn;
  while (expert < group.experts && !is_needed_[expert]) ++expert;
  return group.first_turn_of(expert);
}

bool ExpertDemand::is_known(std::size_t turn) const {
  const std::size_t group = group_of_[turn];
  return group == none || group == known_ || most_are_needed_;
}

}  // namespace sluice::streaming
