// Random weights in every block format: random bits for the values, scales chosen so that the
// weights have a given standard deviation and mean zero, nothing infinite and no NaN.
//
// The same seed gives the same bytes on every platform: integer arithmetic throughout, but for a
// few correctly rounded operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/block_formats.h"

namespace sluice::synth {

// xoshiro256++ of Blackman and Vigna, seeded by splitmix64.
class Random {
 public:
  // Different streams of one seed are independent: one for each tensor.
  Random(std::uint64_t seed, std::uint64_t stream);

  std::uint64_t next();
  void fill(std::span<std::byte> bytes);

  // Mean 0 and standard deviation 1; the sum of four uniform numbers, so within 3.5.
  float normal();

 private:
  std::array<std::uint64_t, 4> state_;
};

// Fills `out`, whole blocks of `type`, with weights of the given standard deviation (above 0).
void fill_random_blocks(kernels::BlockType type, std::span<std::byte> out, float std_deviation,
                        Random& random);

}  // namespace sluice::synth
