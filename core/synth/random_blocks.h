// Random weights in every block format: random bits for the values, scales chosen so that the
// weights have a given standard deviation and mean zero, nothing infinite and no NaN.
//
// The same seed gives the same bytes on every platform: integer arithmetic throughout, but for a
// few correctly rounded operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/random.h"
#include "kernels/block_formats.h"

namespace sluice::synth {

class Random {
 public:
  // Different streams of one seed are independent: one for each tensor.
  Random(std::uint64_t seed, std::uint64_t stream);

  std::uint64_t next() { return bits_.plus_plus(); }
  void fill(std::span<std::byte> bytes);

  // Mean 0 and standard deviation 1; the sum of four uniform numbers, so within 3.5.
  float normal();

 private:
  Xoshiro256 bits_;
};

// Fills `out`, whole blocks of `type`, with weights of the given standard deviation (above 0).
void fill_random_blocks(kernels::BlockType type, std::span<std::byte> out, float std_deviation,
                        Random& random);

}  // namespace sluice::synth
