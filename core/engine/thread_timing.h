// Chooses the number of threads where only measuring can decide.
//
// A second thread on the only core shares its execution units and its caches. A second thread under
// a quota of one and a half CPUs is stopped for a part of each period. Whether it helps depends on
// the machine and on the code. So both numbers of threads are timed on the product with one column,
// where decoding spends its time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "topology/machine.h"

namespace sluice::engine {

// The speed, in any unit, of a team with one thread on each of the CPUs.
using TeamSpeed = std::function<double(const topology::CpuList& cpus)>;

// Times a choice against its alternative. In the result `cpus` are those of the faster team,
// `alternative_cpus` is empty, and the reason tells what was measured. A choice without an
// alternative is returned as it is. The teams are timed alternately, twice each, and the better
// time of each counts.
topology::ThreadChoice try_alternative(const topology::ThreadChoice& choice,
                                       const TeamSpeed& speed);

// topology::choose_threads with that timing. The timing takes a fifth of a second where it is
// needed, a second under a quota, and is done once in a process. It holds at most 64 MiB, and at
// most a quarter of the memory that is free to the process and of the budget. Throws what
// choose_threads throws.
topology::ThreadChoice choose_timed_threads(const topology::Machine& machine,
                                            unsigned requested = 0,
                                            std::optional<std::uint64_t> budget_bytes = {});

}  // namespace sluice::engine
