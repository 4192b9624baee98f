// How many sequences share a turn of the tape.
//
// A step of n sequences takes the weights from memory, once, and the arithmetic, n times that of
// one; meanwhile the streamed weights come from the disk, once. More sequences take memory from the
// pinned weights, so the last grows too. The tokens per second grow until arithmetic binds; the
// choice is the fewest sequences that reach nearly all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/engine/machine_limits.h"

namespace sluice::batch {

inline constexpr std::uint32_t parallel_max = 256;

struct ParallelChoice {
  std::uint32_t parallel = 1;
  std::string reason;  // one line
};

// `work_of(n)`: what a step of one token would do if memory were planned for n sequences, or
// nothing when that does not fit. `rows`: that are left to do.
ParallelChoice choose_parallel(
    const engine::MachineLimits& limits, std::uint64_t rows,
    const std::function<std::optional<engine::DecodeWork>(std::uint32_t parallel)>& work_of);

}  // namespace sluice::batch
