// How often drafts of each grade were right in a text so far: an estimate that forgets, since a
// text changes. It begins with a cautious guess. It learns from all drafts, also from those that no
// step had room for: what was chosen tells whether they would have been right.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/speculate/source.h"

namespace sluice::speculate {

class Acceptance {
 public:
  Acceptance();

  // The probability that a draft of this grade is right when those before it are.
  double rate(std::uint8_t grade) const {
    return grade == certain_grade ? 1 : rates_[grade < grades ? grade : grades - 1];
  }

  void learn(std::uint8_t grade, bool is_right);

 private:
  std::array<double, grades> rates_;
};

}  // namespace sluice::speculate
