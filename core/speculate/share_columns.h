// Shares the columns of a step out to the drafts of its rows.
#pragma once

#include <cstddef>
#include <span>

#include "core/speculate/acceptance.h"
#include "core/speculate/source.h"
#include "core/speculate/step_times.h"

namespace sluice::speculate {

// The drafts of a row, and how many of them get a column: the first ones.
struct Share {
  std::span<const Draft> drafts;
  const Acceptance* acceptance;
  std::size_t columns = 0;
};

// How many drafts a step should have, and how many tokens a second it brings with them.
struct Worth {
  std::size_t drafts = 0;
  double tokens_per_s = 0;
};

// Of drafts that take `seconds_each` to be found, where the i-th one is right with probability
// rates[i] if those before it are. `columns` and `tokens` are those of the step without them. With
// no drafts, if a step with some is hardly better.
Worth worth_of(std::span<const double> rates, double seconds_each, std::size_t columns,
               std::size_t tokens, const StepTimes& times);

// Gives at most `most` columns to drafts, each to the one that is most likely to bring a token. Of
// all numbers of columns it takes the one with which the step brings most tokens in its time;
// `columns` and `tokens` are those of the step without drafts. Without `times` all drafts that
// there are get a column.
void share_columns(std::span<Share> shares, std::size_t most, std::size_t columns,
                   std::size_t tokens, const StepTimes* times);

}  // namespace sluice::speculate
