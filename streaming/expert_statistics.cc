#include "streaming/expert_statistics.h"

namespace sluice::streaming {

double ExpertStatistics::hit_rate() const {
  return uses == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(uses);
}

double ExpertStatistics::bytes_read_per_token() const {
  return tokens == 0 ? 0 : static_cast<double>(missed_bytes) / static_cast<double>(tokens);
}

ExpertStatistics sum_of(std::span<const ExpertStatistics> groups) {
  ExpertStatistics sum;
  if (!groups.empty()) sum.tokens = groups.front().tokens;
  for (const ExpertStatistics& group : groups) {
    sum.uses += group.uses;
    sum.hits += group.hits;
    sum.missed_bytes += group.missed_bytes;
    sum.stall_ns += group.stall_ns;
  }
  return sum;
}

}  // namespace sluice::streaming
