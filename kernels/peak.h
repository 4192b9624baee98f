// The peak rate of 8-bit multiply-adds of an instruction set: its dot-product instruction on
// registers alone. Matrix products are compared with it.
#pragma once

#include <cstdint>

namespace sluice::kernels {

struct PeakKernels {
  // Runs `rounds` rounds and returns how many multiply-adds that were. Touches no memory.
  std::uint64_t (*int8_macs)(std::uint64_t rounds);
};

}  // namespace sluice::kernels
