// How the experts of a mixture were used: what was found in memory, and what had to be read.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::streaming {

struct ExpertStatistics {
  std::uint64_t tokens = 0;        // of all steps
  std::uint64_t uses = 0;          // experts that a step needed, each counted once a step
  std::uint64_t hits = 0;          // how many of them were in memory
  std::uint64_t missed_bytes = 0;  // of the others
  std::uint64_t stall_ns = 0;      // time waited for them

  double hit_rate() const;              // 1 when none was needed
  double bytes_read_per_token() const;  // 0 when there were no tokens
};

// Of a whole model, of its groups. Every token passes all groups.
ExpertStatistics sum_of(std::span<const ExpertStatistics> groups);

}  // namespace sluice::streaming
