// How many threads, where only the clock can tell.
//
// A second thread on the only core shares its execution units and its caches; a second thread under
// a quota of one and a half CPUs is stopped for a part of each period. Whether it helps depends on
// the machine and on the code, so the product with one column, where decoding spends its time, is
// run with both numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "topology/machine.h"

namespace sluice::engine {

// How fast a team of threads, one on each of the CPUs, gets through its work, in any unit.
using TeamSpeed = std::function<double(const topology::CpuList& cpus)>;

// The choice with its alternative tried: `cpus` are those of the faster team, `alternative_cpus`
// are empty, and the reason says what came out. A choice without an alternative is returned as it
// is. Each team is timed twice, in turns, and its better time counts.
topology::ThreadChoice try_alternative(const topology::ThreadChoice& choice,
                                       const TeamSpeed& speed);

// topology::choose_threads with that timing, which takes a fifth of a second where it is needed,
// or one under a quota, and is made once in a process. It holds no more than 64 MiB, nor than a
// quarter of what is free to the process or of the budget. Throws what choose_threads throws.
topology::ThreadChoice choose_timed_threads(const topology::Machine& machine,
                                            unsigned requested = 0,
                                            std::optional<std::uint64_t> budget_bytes = {});

}  // namespace sluice::engine
