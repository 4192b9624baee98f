#include "core/speculate/acceptance.h"

namespace sluice::speculate {

// From 1/4 for the lowest grade to 5/6 for the highest one.
Acceptance::Acceptance() : rates_{} {
  for (std::size_t grade = 0; grade < grades; ++grade) {
    rates_[grade] = (1.0 + static_cast<double>(grade)) / (4.0 + static_cast<double>(grade));
  }
}

void Acceptance::learn(std::uint8_t grade, bool is_right) {
  constexpr double weight = 1.0 / 12;  // of the newest
  if (grade == certain_grade) return;
  double& rate = rates_[grade < grades ? grade : grades - 1];
  rate += weight * ((is_right ? 1.0 : 0.0) - rate);
}

}  // namespace sluice::speculate
