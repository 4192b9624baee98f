#include "core/speculate/share_columns.h"

#include <algorithm>
#include <vector>

namespace sluice::speculate {

namespace {

// A step with drafts has to be so much better than one without: the estimates are no more exact.
constexpr double gain_min = 1.05;

// The row whose next draft is the most likely to bring a token. `chances`: for each row, that all
// drafts that have a column are right.
std::size_t likeliest(std::span<const Share> shares, std::span<const double> chances,
                      double& chance) {
  std::size_t best = shares.size();
  chance = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const Share& share = shares[i];
    if (share.columns == share.drafts.size()) continue;
    const double of_next = chances[i] * share.acceptance->rate(share.drafts[share.columns].grade);
    if (of_next <= chance) continue;
    chance = of_next;
    best = i;
  }
  return best;
}

}  // namespace

Worth worth_of(std::span<const double> rates, double seconds_each, std::size_t columns,
               std::size_t tokens, const StepTimes& times) {
  const double alone = times.seconds(columns);
  if (alone <= 0) return {};
  auto expected = static_cast<double>(tokens);
  Worth best{0, gain_min * expected / alone};
  double chance = 1;
  for (std::size_t count = 1; count <= rates.size(); ++count) {
    if (columns + count > StepTimes::columns_max) break;
    chance *= rates[count - 1];
    expected += chance;
    const double seconds =
        times.seconds(columns + count) + static_cast<double>(count) * seconds_each;
    if (expected / seconds > best.tokens_per_s) best = {count, expected / seconds};
  }
  return best;
}

void share_columns(std::span<Share> shares, std::size_t most, std::size_t columns,
                   std::size_t tokens, const StepTimes* times) {
  std::vector<double> chances(shares.size(), 1);
  std::vector<std::size_t> order;  // the rows, in the order in which they get columns
  const double alone = times == nullptr ? 0 : times->seconds(columns);
  if (times != nullptr) {
    if (alone <= 0) return;
    most = std::min(most, StepTimes::columns_max - std::min(columns, StepTimes::columns_max));
  }
  auto expected = static_cast<double>(tokens);
  double best = times == nullptr ? 0 : gain_min * expected / alone;  // tokens a second
  std::size_t taken = 0;
  while (order.size() < most) {
    double chance = 0;
    const std::size_t row = likeliest(shares, chances, chance);
    if (row == shares.size()) break;
    order.push_back(row);
    ++shares[row].columns;
    chances[row] = chance;
    expected += chance;
    if (times == nullptr) {
      taken = order.size();
    } else if (const double speed = expected / times->seconds(columns + order.size());
               speed > best) {
      best = speed;
      taken = order.size();
    }
  }
  for (std::size_t i = taken; i < order.size(); ++i) --shares[order[i]].columns;
}

}  // namespace sluice::speculate
