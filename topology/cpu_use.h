// How much of the time of the CPUs others take: other processes, and other guests of the host.
#pragma once

#include <optional>

#include "topology/file_root.h"

namespace sluice::topology {

// Seconds of all CPUs together since some moment in the past.
struct CpuTimes {
  double all = 0;   // busy or not
  double busy = 0;  // anybody's, with what the host gave to other guests instead
  double own = 0;   // of this process
};

// Nothing where the kernel does not tell (/proc/stat). `own_seconds` replaces what the kernel says
// of this process.
std::optional<CpuTimes> read_cpu_times(const FileRoot& root = {},
                                       std::optional<double> own_seconds = std::nullopt);

// The share of the time of all CPUs that others took between two readings, from 0 to 1.
double share_of_others(const CpuTimes& before, const CpuTimes& after);

// Measures that share from now on.
class OthersWatch {
 public:
  // Nothing where the kernel does not tell.
  std::optional<double> share() const;

 private:
  std::optional<CpuTimes> begin_ = read_cpu_times();
};

// Above this share of others a moment is not quiet.
inline constexpr double quiet_share_max = 0.1;

}  // namespace sluice::topology
